// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/storage"
)

// withRuntimeConfig starts a server that serves a --runtime-config.
func withRuntimeConfig(t *testing.T, config map[string]string) *testServer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	dir := t.TempDir()
	backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close() })
	s, err := boot(ctx, dir, backend, func(c *Config) { c.RuntimeConfig = config })
	if s != nil {
		t.Cleanup(func() { cancel(); <-s.stopped })
	}
	if err == nil {
		err = s.AwaitServed(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const containers = `"spec":{"containers":[{"name":"c","image":"any"}]}`

// TestOlderVersionsAreOff: a server with the default configuration does not know them.
func TestOlderVersionsAreOff(t *testing.T) {
	for _, path := range []string{"/apis/extensions", "/apis/apps/v1beta1", "/apis/apps/v1beta2/deployments"} {
		if got := server.do(t, server.admin, http.MethodGet, path, ""); got.code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.code)
		}
	}
	if server.scheme.Recognizes(extensionsv1beta1.SchemeGroupVersion.WithKind("Deployment")) || len(offByDefault(server.groups)) > 0 {
		t.Error("versions that are off are in the scheme")
	}
}

// TestOneResourceOfAnOlderVersion enables a resource on its own.
func TestOneResourceOfAnOlderVersion(t *testing.T) {
	s := withRuntimeConfig(t, map[string]string{"extensions/v1beta1/deployments": "true"})
	got := s.do(t, s.admin, http.MethodGet, "/apis/extensions/v1beta1", "")
	if got.code != http.StatusOK || !strings.Contains(got.body, `"deployments/scale"`) || strings.Contains(got.body, "daemonsets") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := s.do(t, s.admin, http.MethodGet, "/apis/apps/v1beta1", ""); got.code != http.StatusNotFound {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// TestOlderVersions: an object that is written in one version is read, watched, applied, scaled and
// rolled back in another one.
func TestOlderVersions(t *testing.T) {
	s := withRuntimeConfig(t, map[string]string{"extensions/v1beta1": "true", "apps/v1beta1": "true", "apps/v1beta2": "true"})
	namespace := s.namespace(t)
	in := func(gv string) string { return "/apis/" + gv + "/namespaces/" + namespace + "/deployments" }
	old, now := in("extensions/v1beta1"), in("apps/v1")
	steps := []struct {
		name, method, path, body, contentType string
		code                                  int
		want                                  []string
	}{
		{"create", http.MethodPost, old, `{"metadata":{"name":"web"},"spec":{"template":{"metadata":{"labels":{"app":"web"}},` + containers + `}}}`, "", 201,
			[]string{`"apiVersion":"extensions/v1beta1"`}},
		{"no selector in apps/v1", http.MethodPost, now, `{"metadata":{"name":"bad"},"spec":{"template":{"metadata":{"labels":{"app":"web"}},` + containers + `}}}`, "", 422,
			[]string{"spec.selector: Required value"}},
		{"no service in apps/v1beta1", http.MethodPost, strings.Replace(in("apps/v1beta1"), "deployments", "statefulsets", 1), `{"metadata":{"name":"bad"},"spec":{"template":{` + containers + `}}}`, "", 422,
			[]string{"spec.selector: Required value"}},
		{"read", http.MethodGet, now + "/web", "", "", 200, []string{`"maxSurge":1`, `"revisionHistoryLimit":2147483647`, `"matchLabels":{"app":"web"}`}},
		{"list", http.MethodGet, in("apps/v1beta2"), "", "", 200, []string{`"kind":"DeploymentList"`, `"apiVersion":"apps/v1beta2"`, `"maxSurge":1`}},
		{"watch", http.MethodGet, in("apps/v1beta1") + "?watch=1&timeoutSeconds=1&resourceVersion=0", "", "", 200, []string{`{"type":"ADDED","object":{"kind":"Deployment","apiVersion":"apps/v1beta1"`}},
		{"apply", http.MethodPatch, now + "/web?fieldManager=new", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"minReadySeconds":3}}`, "application/apply-patch+yaml", 200, nil},
		{"apply as before", http.MethodPatch, old + "/web?fieldManager=old", `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"web"},"spec":{"paused":true}}`, "application/apply-patch+yaml", 200,
			[]string{`"manager":"new","operation":"Apply","apiVersion":"apps/v1"`, `"manager":"old","operation":"Apply","apiVersion":"extensions/v1beta1"`, `"minReadySeconds":3`}},
		{"conflict", http.MethodPatch, in("apps/v1beta2") + "/web?fieldManager=third", `{"apiVersion":"apps/v1beta2","kind":"Deployment","metadata":{"name":"web"},"spec":{"minReadySeconds":4}}`, "application/apply-patch+yaml", 409,
			[]string{`conflict with \"new\": .spec.minReadySeconds`}},
		{"scale", http.MethodPatch, old + "/web/scale", `{"spec":{"replicas":2}}`, "application/merge-patch+json", 200, []string{`"kind":"Scale","apiVersion":"extensions/v1beta1"`, `"replicas":2`, `"targetSelector":"app=web"`}},
		{"scale in autoscaling/v1", http.MethodGet, now + "/web/scale", "", "", 200, []string{`"apiVersion":"autoscaling/v1"`, `"replicas":2`}},
		{"immutable selector", http.MethodPatch, in("apps/v1beta2") + "/web", `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}}`, "application/merge-patch+json", 422, []string{"field is immutable"}},
		{"mutable selector", http.MethodPatch, in("apps/v1beta1") + "/web", `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}}`, "application/merge-patch+json", 200, []string{`"matchLabels":{"a":"b","app":"web"}`}},
		{"rollback of another", http.MethodPost, old + "/web/rollback", `{"name":"other"}`, "", 400, []string{"name in URL does not match name in DeploymentRollback object"}},
		{"rollback to nothing", http.MethodPost, old + "/web/rollback", `{"name":"web","rollbackTo":{"revision":-1}}`, "", 422, []string{"rollback.version: Invalid value: -1"}},
		{"rollback, dry", http.MethodPost, old + "/web/rollback?dryRun=All", `{"name":"web","rollbackTo":{"revision":7}}`, "", 201, []string{"succeeded"}},
		{"not rolled back", http.MethodGet, old + "/web", "", "", 200, []string{`"paused":true`}},
		{"rollback", http.MethodPost, in("apps/v1beta1") + "/web/rollback", `{"name":"web","updatedAnnotations":{"why":"test"},"rollbackTo":{"revision":3}}`, "", 201, []string{`rollback request for deployment \"web\" succeeded`}},
		{"rollback in apps/v1", http.MethodGet, now + "/web", "", "", 200, []string{`"deprecated.deployment.rollback.to":"3"`, `"why":"test"`}},
		{"rollback as a field", http.MethodGet, old + "/web", "", "", 200, []string{`"rollbackTo":{"revision":3}`}},
		{"no rollback in apps/v1", http.MethodPost, now + "/web/rollback", `{"name":"web"}`, "", 404, nil},
		{"deletion", http.MethodDelete, in("apps/v1beta2") + "/web", "", "", 200, []string{`"finalizers":["orphan"]`}},
	}
	for _, step := range steps {
		got := s.do(t, s.admin, step.method, step.path, step.body, "Content-Type", contentType(step.contentType))
		if got.code != step.code {
			t.Fatalf("%s: %d %s", step.name, got.code, got.body)
		}
		for _, want := range step.want {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s: no %s in %s", step.name, want, got.body)
			}
		}
		if step.name == "create" && !strings.Contains(fmt.Sprint(got.header), "extensions/v1beta1 Deployment is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 Deployment") {
			t.Errorf("warnings: %v", got.header)
		}
	}

	for gv, want := range map[schema.GroupVersion]bool{
		extensionsv1beta1.SchemeGroupVersion:    true,
		{Group: "apps", Version: "v1beta2"}:     true,
		appsv1.SchemeGroupVersion:               false,
		{Group: "extensions", Version: "v1"}:    false,
		{Group: "batch", Version: "v1"}:         false,
		{Group: "autoscaling", Version: "v1"}:   false,
		{Group: "example.com", Version: "v1"}:   false,
		{Group: "apps", Version: "v1beta1"}:     true,
		{Group: "extensions", Version: "beta1"}: false,
	} {
		if got := s.orphans(gv.WithResource("deployments")); got != want {
			t.Errorf("a deletion in %s orphans: %t, want %t", gv, got, want)
		}
	}
	if s.storedAs(schema.GroupResource{Group: "extensions", Resource: "daemonsets"}) != "daemonsets.apps" ||
		s.storedAs(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) != "events" ||
		s.storedAs(schema.GroupResource{Group: "batch", Resource: "jobs"}) != "jobs.batch" {
		t.Error("requests for one object in several groups are not equivalent")
	}
}

func contentType(stated string) string {
	if stated == "" {
		return "application/json"
	}
	return stated
}

// TestPoliciesSeeOlderVersions: a policy for apps/v1 also judges requests in the group extensions.
func TestPoliciesSeeOlderVersions(t *testing.T) {
	s := withRuntimeConfig(t, map[string]string{"extensions/v1beta1": "true"})
	namespace := s.namespace(t)
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	s.create(t, policies, `{"metadata":{"name":"small"},"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deployments"]}]},
		"validations":[{"expression":"object.apiVersion == 'apps/v1' && object.spec.replicas < 5","message":"too many"}]}}`)
	s.create(t, policies[:len(policies)-len("policies")]+"policybindings", `{"metadata":{"name":"small"},"spec":{"policyName":"small","validationActions":["Deny"]}}`)
	body := `{"metadata":{"generateName":"web-"},"spec":{"replicas":9,"template":{"metadata":{"labels":{"app":"web"}},` + containers + `}}}`
	err := within(10*time.Second, func() error {
		got := s.do(t, s.admin, http.MethodPost, "/apis/extensions/v1beta1/namespaces/"+namespace+"/deployments", body)
		if got.code != http.StatusUnprocessableEntity || !strings.Contains(got.body, "too many") {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	small := strings.Replace(body, "9", "2", 1)
	if got := s.do(t, s.admin, http.MethodPost, "/apis/extensions/v1beta1/namespaces/"+namespace+"/deployments", small); got.code != http.StatusCreated {
		t.Errorf("%d %s", got.code, got.body)
	}
}

func (s *testServer) create(t *testing.T, path, body string) {
	t.Helper()
	if got := s.do(t, s.admin, http.MethodPost, path, body); got.code != http.StatusCreated {
		t.Fatalf("%s: %d %s", path, got.code, got.body)
	}
}
