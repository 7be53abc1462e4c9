// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// delete sends an in-process DELETE.
func (s *testServer) delete(t *testing.T, as user.Info, path string, options metav1.DeleteOptions) answer {
	t.Helper()
	client, err := clientrest.HTTPClientFor(s.Config(as))
	if err != nil {
		t.Fatal(err)
	}
	return s.do(t, client, http.MethodDelete, path, string(inProtobuf(t, options)), "Content-Type", runtime.ContentTypeProtobuf, "Accept", runtime.ContentTypeJSON)
}

func inProtobuf(t *testing.T, options metav1.DeleteOptions) []byte {
	t.Helper()
	v1, scheme := schema.GroupVersion{Version: "v1"}, runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	body, err := runtime.Encode(serializer.NewCodecFactory(scheme).EncoderForVersion(protobuf.NewSerializer(scheme, scheme), v1), &options)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// short and long are users whose deletions use the fast path and the generic endpoint.
var (
	short = &user.DefaultInfo{Name: collectorUser, Groups: []string{user.AllAuthenticated}}
	long  = &user.DefaultInfo{Name: "jane", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
)

// wentShort reports whether a successful request used the fast path, which responds only with a
// code.
func (a answer) wentShort() bool { return a.body == "" }

// TestDeletionsOfTheCollector: the fast path and the generic endpoint have the same results.
func TestDeletionsOfTheCollector(t *testing.T) {
	s := server
	namespace := s.namespace(t)
	configMaps, pods := "/api/v1/namespaces/"+namespace+"/configmaps", "/api/v1/namespaces/"+namespace+"/pods"
	const configMap, pod = `{"metadata":{"name":%q}}`, `{"metadata":{"name":%q},"spec":{"nodeName":"n","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`
	named := func(uid string, options metav1.DeleteOptions) metav1.DeleteOptions {
		options.Preconditions = &metav1.Preconditions{UID: ptr.To(types.UID(uid))}
		return options
	}
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	for name, test := range map[string]struct {
		path, body string
		options    metav1.DeleteOptions
		exact      bool // the preconditions name the object's UID and version
		code       int
		left       string // what exists afterwards: finalizers, and whether the object is being deleted
	}{
		"background":       {configMaps, configMap, policy(metav1.DeletePropagationBackground), true, 200, "nothing"},
		"no version named": {configMaps, configMap, metav1.DeleteOptions{}, false, 200, "nothing"},
		"another UID":      {configMaps, configMap, named("other", metav1.DeleteOptions{}), false, 409, "[] false"},
		"another version":  {configMaps, configMap, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")}}, false, 409, "[] false"},
		"a finalizer":      {configMaps, `{"metadata":{"name":%q,"finalizers":["example.com/wait"]}}`, policy(metav1.DeletePropagationBackground), true, 200, "[example.com/wait] true"},
		"foreground":       {configMaps, configMap, policy(metav1.DeletePropagationForeground), true, 200, "[foregroundDeletion] true"},
		"orphan":           {configMaps, configMap, policy(metav1.DeletePropagationOrphan), true, 200, "[orphan] true"},
		"dry run":          {configMaps, configMap, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, true, 200, "[] false"},
		"two policies":     {configMaps, configMap, metav1.DeleteOptions{OrphanDependents: ptr.To(true), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, false, 422, "[] false"},
		"a grace period":   {pods, pod, metav1.DeleteOptions{}, true, 200, "[] true"},
		"no grace period":  {pods, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, true, 200, "nothing"},
		"no namespace":     {"/api/v1/nodes", configMap, policy(metav1.DeletePropagationBackground), true, 200, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var answers []answer
			for i, as := range []user.Info{short, long} {
				object := fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(name), " ", "-"), i)
				made := s.do(t, s.admin, http.MethodPost, test.path, fmt.Sprintf(test.body, object))
				if made.code != http.StatusCreated {
					t.Fatal(made.body)
				}
				options := test.options
				if test.exact {
					meta := metadataOf(t, made)
					options.Preconditions = &metav1.Preconditions{UID: &meta.UID, ResourceVersion: &meta.ResourceVersion}
				}
				got := s.delete(t, as, test.path+"/"+object, options)
				if got.code != test.code {
					t.Errorf("%s: %d %s", as.GetName(), got.code, got.body)
				}
				if left := s.left(t, test.path+"/"+object); left != test.left {
					t.Errorf("%s: %s is left, want %s", as.GetName(), left, test.left)
				}
				answers = append(answers, got)
			}
			if test.code == http.StatusOK {
				if !answers[0].wentShort() || answers[1].wentShort() {
					t.Errorf("wrong endpoints: responses %q and %q", answers[0].body, answers[1].body)
				}
				return
			}
			if one, other := answers[0].status(t).Reason, answers[1].status(t).Reason; one != other {
				t.Errorf("different errors: %s and %s", one, other)
			}
		})
	}
	for name, path := range map[string]string{"absent": configMaps + "/absent", "refused by admission": "/api/v1/namespaces/kube-system"} {
		one, other := s.delete(t, short, path, metav1.DeleteOptions{}), s.delete(t, long, path, metav1.DeleteOptions{})
		if one.code < 400 || one.code != other.code || one.status(t).Message != other.status(t).Message {
			t.Errorf("%s: %s, and %s", name, one.body, other.body)
		}
	}
}

func metadataOf(t *testing.T, a answer) metav1.ObjectMeta {
	t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(a.body), &object); err != nil {
		t.Fatal(err)
	}
	return object.ObjectMeta
}

func (s *testServer) left(t *testing.T, path string) string {
	t.Helper()
	got := s.do(t, s.admin, http.MethodGet, path, "")
	if got.code == http.StatusNotFound {
		return "nothing"
	}
	meta := metadataOf(t, got)
	return fmt.Sprint(meta.Finalizers, " ", meta.DeletionTimestamp != nil)
}

// TestDeletionsAreAllowed: the fast path authorizes requests.
func TestDeletionsAreAllowed(t *testing.T) {
	s := own(t, func(*Config) {})
	if err := s.client(t).RbacV1().ClusterRoleBindings().Delete(t.Context(), "system:controller:generic-garbage-collector", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/default/configmaps"
	s.do(t, s.admin, http.MethodPost, path, `{"metadata":{"name":"one"}}`)
	refused := func(name string) error {
		if got := s.delete(t, short, path+"/"+name, metav1.DeleteOptions{}); got.code != http.StatusForbidden {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	}
	// The authorizer gets the change a little later.
	if err := within(10*time.Second, func() error { return refused("absent") }); err != nil {
		t.Fatal(err)
	}
	err := refused("one")
	if left := s.left(t, path+"/one"); err != nil || left != "[] false" {
		t.Errorf("%v; left: %s", err, left)
	}
}

// slow is a storage whose deletions block until their context is done.
type slow struct{ rest.GracefulDeleter }

func (slow) Delete(ctx context.Context, _ string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

// TestDeletionsTimeOut: the timeout of a deletion is the error of k8s.io/apiserver, by which
// storeGate recognizes that the store was lost.
func TestDeletionsTimeOut(t *testing.T) {
	ctx, cancel := context.WithCancel(request.WithRequestInfo(t.Context(), &request.RequestInfo{Name: "one"}))
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodDelete, "/", bytes.NewReader(inProtobuf(t, metav1.DeleteOptions{})))
	e := &deleteEndpoint{deleter: slow{}, admit: admission.NewChainHandler()}
	if _, err := e.delete(r); !apierrors.IsTimeout(err) {
		t.Errorf("answered with %v", err)
	}
}

// TestDeletionsElsewhere: resources that this server does not serve, or no longer serves, use the
// generic endpoint.
func TestDeletionsElsewhere(t *testing.T) {
	s := own(t, func(*Config) {})
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	if got := s.do(t, s.admin, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets); got.code != http.StatusCreated {
		t.Fatal(got.body)
	}
	const custom = "/apis/example.com/v1/namespaces/default/widgets"
	err := within(10*time.Second, func() error {
		if got := s.do(t, s.admin, http.MethodPost, custom, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"one"}}`); got.code != http.StatusCreated {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.delete(t, short, "/api/v1/namespaces/default/nodes/one", metav1.DeleteOptions{}); got.code != http.StatusNotFound || strings.Contains(got.body, `"one"`) {
		t.Errorf("a cluster-scoped kind with a namespace: %d %s", got.code, got.body)
	}
	if got := s.delete(t, short, custom+"/one", metav1.DeleteOptions{}); got.code != http.StatusOK || got.wentShort() {
		t.Errorf("a custom resource: %d %q", got.code, got.body)
	}

	const claims = "/apis/batch/v1/namespaces/default/jobs"
	if got := s.delete(t, short, claims+"/one", metav1.DeleteOptions{}); got.code != http.StatusNotFound {
		t.Errorf("a job that does not exist: %d %s", got.code, got.body)
	}
	patch := `{"spec":{"service":{"namespace":"default","name":"other"},"insecureSkipTLSVerify":true}}`
	if got := s.do(t, s.admin, http.MethodPatch, services+"/v1.batch", patch, "Content-Type", "application/merge-patch+json"); got.code != http.StatusOK {
		t.Fatal(got.body)
	}
	err = within(10*time.Second, func() error {
		if got := s.delete(t, short, claims+"/one", metav1.DeleteOptions{}); got.code != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if err != nil {
		t.Errorf("a group that another server serves: %v", err)
	}
}
