// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	_ "embed"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed testdata/discovery.tsv
var upstreamDiscovery string

// discovered is one resource as discovery tells of it, one field after the other.
type discovered [8]string

func upstreamResources() map[string]discovered {
	out := map[string]discovered{}
	for line := range strings.Lines(upstreamDiscovery) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := discovered(strings.Split(strings.TrimSpace(line), "\t"))
		out[row[0]+" "+row[1]] = row
	}
	return out
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func describe(gv string, r metav1.APIResource) discovered {
	kind, scope := r.Kind, "cluster"
	if r.Version != "" {
		kind = strings.TrimPrefix(r.Group+"/", "/") + r.Version + "." + r.Kind
	}
	if r.Namespaced {
		scope = "namespaced"
	}
	singular := orDash(r.SingularName)
	if strings.Contains(r.Name, "/") {
		singular = "-" // the client fills in that of the resource
	}
	return discovered{gv, r.Name, singular, kind, scope, strings.Join(r.Verbs, ","),
		orDash(strings.Join(r.ShortNames, ",")), orDash(strings.Join(r.Categories, ","))}
}

// TestDiscovery holds everything that is served in upstream's groups to what
// upstream says of it.
func TestDiscovery(t *testing.T) {
	_, lists, err := server.client(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	upstream := upstreamResources()
	served := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			key := list.GroupVersion + " " + resource.Name
			served[key] = true
			want, known := upstream[key]
			if !known {
				t.Errorf("%s is served, and not by upstream", key)
				continue
			}
			if diff := cmp.Diff(want, describe(list.GroupVersion, resource)); diff != "" {
				t.Errorf("%s (-upstream +ours):\n%s", key, diff)
			}
		}
	}
	for key := range upstream {
		// A resource that is served has all its subresources.
		main, sub, isSub := strings.Cut(key, "/status")
		if isSub && sub == "" && served[main] && !served[key] {
			t.Errorf("%s is served without its status", main)
		}
	}
	for _, key := range []string{
		"v1 namespaces", "v1 namespaces/finalize", "v1 nodes", "v1 pods", "v1 pods/binding", "v1 bindings", "v1 pods/log", "v1 pods/exec",
		"v1 pods/attach", "v1 pods/portforward", "v1 pods/proxy", "v1 pods/ephemeralcontainers", "v1 pods/resize", "v1 configmaps",
		"v1 secrets", "v1 serviceaccounts", "v1 serviceaccounts/token", "v1 services", "v1 endpoints", "v1 events", "v1 podtemplates",
		"apps/v1 deployments", "apps/v1 deployments/scale", "apps/v1 replicasets", "apps/v1 replicasets/scale", "apps/v1 controllerrevisions",
		"coordination.k8s.io/v1 leases", "events.k8s.io/v1 events", "discovery.k8s.io/v1 endpointslices",
		"rbac.authorization.k8s.io/v1 roles", "rbac.authorization.k8s.io/v1 rolebindings",
		"rbac.authorization.k8s.io/v1 clusterroles", "rbac.authorization.k8s.io/v1 clusterrolebindings",
		"scheduling.k8s.io/v1 priorityclasses", "networking.k8s.io/v1 ipaddresses", "networking.k8s.io/v1 servicecidrs",
		"networking.k8s.io/v1 ingresses", "networking.k8s.io/v1 ingressclasses", "networking.k8s.io/v1 networkpolicies",
		"storage.k8s.io/v1 storageclasses", "storage.k8s.io/v1 volumeattachments", "storage.k8s.io/v1 volumeattributesclasses",
		"storage.k8s.io/v1 csidrivers", "storage.k8s.io/v1 csinodes", "storage.k8s.io/v1 csistoragecapacities", "node.k8s.io/v1 runtimeclasses",
		"certificates.k8s.io/v1 certificatesigningrequests", "certificates.k8s.io/v1 certificatesigningrequests/approval",
		"certificates.k8s.io/v1 clustertrustbundles", "certificates.k8s.io/v1 podcertificaterequests",
		"authentication.k8s.io/v1 tokenreviews", "authentication.k8s.io/v1 selfsubjectreviews",
		"authorization.k8s.io/v1 subjectaccessreviews", "authorization.k8s.io/v1 localsubjectaccessreviews",
		"authorization.k8s.io/v1 selfsubjectaccessreviews", "authorization.k8s.io/v1 selfsubjectrulesreviews",
		"apiextensions.k8s.io/v1 customresourcedefinitions", "apiregistration.k8s.io/v1 apiservices",
		"storagemigration.k8s.io/v1 storageversionmigrations",
		"flowcontrol.apiserver.k8s.io/v1 flowschemas", "flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations",
		"admissionregistration.k8s.io/v1 validatingwebhookconfigurations", "admissionregistration.k8s.io/v1 mutatingwebhookconfigurations",
		"admissionregistration.k8s.io/v1 validatingadmissionpolicies", "admissionregistration.k8s.io/v1 validatingadmissionpolicybindings",
		"admissionregistration.k8s.io/v1 mutatingadmissionpolicies", "admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings",
	} {
		if !served[key] {
			t.Errorf("%s is not served", key)
		}
	}
}

// TestUnaggregatedDiscovery: older clients read one document a group.
func TestUnaggregatedDiscovery(t *testing.T) {
	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"} {
		if got := server.do(t, server.admin, http.MethodGet, path, ""); got.code != http.StatusOK || len(got.body) < 50 {
			t.Errorf("GET %s: %d %.100q", path, got.code, got.body)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	for path, wanted := range map[string][]string{
		"/openapi/v2":                               {"io.k8s.api.core.v1.Pod", "io.k8s.api.apps.v1.Deployment", "io.k8s.apiextensions-apiserver"},
		"/openapi/v3":                               {"api/v1", "apis/apps/v1"},
		"/openapi/v3/api/v1":                        {"io.k8s.api.core.v1.Pod", "/api/v1/namespaces/{namespace}/pods/{name}/log"},
		"/openapi/v3/apis/apps/v1":                  {"io.k8s.api.apps.v1.Deployment", "io.k8s.api.autoscaling.v1.Scale"},
		"/openapi/v3/apis/events.k8s.io/v1":         {"io.k8s.api.events.v1.Event"},
		"/openapi/v3/apis/authentication.k8s.io/v1": {"io.k8s.api.authentication.v1.TokenReview"},
	} {
		got := server.do(t, server.admin, http.MethodGet, path, "", "Accept", "application/json")
		if got.code != http.StatusOK {
			t.Errorf("GET %s: %d %.200q", path, got.code, got.body)
			continue
		}
		if strings.Contains(got.body, "__internal") {
			t.Errorf("%s publishes internal kinds", path)
		}
		missing := slices.DeleteFunc(wanted, func(name string) bool { return strings.Contains(got.body, name) })
		if len(missing) > 0 {
			t.Errorf("%s lacks %q", path, missing)
		}
	}
}
