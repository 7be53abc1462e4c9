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

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

//go:embed testdata/discovery.tsv
var upstreamDiscovery string

// discovered is the discovery information of one resource, field by field.
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
		singular = "-" // the client fills in the resource's own
	}
	return discovered{gv, r.Name, singular, kind, scope, strings.Join(r.Verbs, ","),
		orDash(strings.Join(r.ShortNames, ",")), orDash(strings.Join(r.Categories, ","))}
}

// TestDiscovery compares the discovery information of all resources in upstream's groups with
// upstream's.
func TestDiscovery(t *testing.T) {
	_, lists, err := server.client(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	upstream := upstreamResources()
	served := map[string]bool{}
	for _, list := range lists {
		if list.GroupVersion == ownership.SchemeGroupVersion.String() || strings.HasPrefix(list.GroupVersion, "metrics.k8s.io/") {
			continue // Kindred's own API group, and metrics-server's
		}
		for _, resource := range list.APIResources {
			key := list.GroupVersion + " " + resource.Name
			served[key] = true
			want, known := upstream[key]
			if !known {
				t.Errorf("%s is served, but not by upstream", key)
				continue
			}
			if diff := cmp.Diff(want, describe(list.GroupVersion, resource)); diff != "" {
				t.Errorf("%s (-upstream +ours):\n%s", key, diff)
			}
		}
	}
	for key := range upstream {
		if !served[key] {
			t.Errorf("%s is not served", key)
		}
	}
}

// TestUnaggregatedDiscovery: older clients read one document for each group.
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
		"/openapi/v3/apis/metrics.k8s.io/v1":        {"io.k8s.metrics.pkg.apis.metrics.v1.PodMetrics"},
		"/openapi/v3/apis/metrics.k8s.io/v1beta1":   {"io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics"},
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
