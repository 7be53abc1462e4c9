// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

// upstreamChecks are the checks of every health endpoint of kube-apiserver v1.37 that monitoring may rely on:
// those which upstream's test "health handlers should contain necessary checks" requires.
var upstreamChecks = strings.Fields(`ping log etcd autoregister-completion
	poststarthook/start-apiserver-admission-initializer poststarthook/generic-apiserver-start-informers
	poststarthook/start-apiextensions-informers poststarthook/start-apiextensions-controllers poststarthook/crd-informer-synced
	poststarthook/bootstrap-controller poststarthook/start-system-namespaces-controller
	poststarthook/start-service-ip-repair-controllers poststarthook/scheduling/bootstrap-system-priority-classes
	poststarthook/start-cluster-authentication-info-controller poststarthook/start-kube-aggregator-informers
	poststarthook/apiservice-registration-controller poststarthook/apiservice-status-local-available-controller
	poststarthook/apiservice-status-remote-available-controller poststarthook/kube-apiserver-autoregistration
	poststarthook/apiservice-openapi-controller poststarthook/storage-readiness`)

// furtherChecks are checks of kube-apiserver with its default flags that the test does not require.
var furtherChecks = strings.Fields(`poststarthook/rbac/bootstrap-roles poststarthook/start-legacy-token-tracking-controller
	poststarthook/start-kubernetes-service-cidr-controller poststarthook/aggregator-reload-proxy-client-cert
	poststarthook/apiservice-discovery-controller poststarthook/apiservice-openapiv3-controller
	poststarthook/priority-and-fairness-config-consumer poststarthook/priority-and-fairness-config-producer
	poststarthook/priority-and-fairness-filter poststarthook/storage-object-count-tracker-hook`)

// TestHealthChecksOfUpstream reads the verbose form of each health endpoint.
func TestHealthChecksOfUpstream(t *testing.T) {
	for path, more := range map[string][]string{"/healthz": nil, "/livez": nil, "/readyz": {"informer-sync", "shutdown", "etcd-readiness"}} {
		got := server.do(t, server.admin, http.MethodGet, path+"?verbose=1", "")
		if got.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.code, got.body)
		}
		seen := sets.New[string]()
		for line := range strings.Lines(got.body) {
			if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "[") && seen.Has(line) {
				t.Errorf("%s has %q twice", path, line)
			}
			seen.Insert(line)
		}
		for _, name := range append(append(more, upstreamChecks...), furtherChecks...) {
			if !seen.Has("[+]" + name + " ok") {
				t.Errorf("%s lacks the check %s:\n%s", path, name, got.body)
			}
			if one := server.do(t, server.admin, http.MethodGet, path+"/"+name, ""); one.code != http.StatusOK {
				t.Errorf("%s/%s: %d %s", path, name, one.code, one.body)
			}
		}
	}
}

// TestHealthChecksFail makes a step unfinished, and reads the endpoints with and without its check.
func TestHealthChecksFail(t *testing.T) {
	s := own(t, func(*Config) {})
	for step, done := range s.boot {
		done.Store(false)
		name := "poststarthook/" + step
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			if got := s.do(t, s.admin, http.MethodGet, path, ""); got.code != http.StatusInternalServerError || !strings.Contains(got.body, "[-]"+name+" failed: reason withheld") {
				t.Errorf("%s without %s: %d %s", path, name, got.code, got.body)
			}
			if got := s.do(t, s.admin, http.MethodGet, path+"/"+name, ""); got.code != http.StatusInternalServerError {
				t.Errorf("%s/%s: %d", path, name, got.code)
			}
			if got := s.do(t, s.admin, http.MethodGet, path+"?exclude="+name, ""); got.code != http.StatusOK {
				t.Errorf("%s?exclude=%s: %d %s", path, name, got.code, got.body)
			}
		}
		done.Store(true)
	}
}

// TestRegistrationCheck: the check names the APIServices that are missing or not available.
func TestRegistrationCheck(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	check := registrationCheck([]string{"v1.", "v1.apps"}, listers.NewAPIServiceLister(store))
	add := func(name string, status apiregistrationv1.ConditionStatus) {
		service := &apiregistrationv1.APIService{}
		service.Name = name
		service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status}}
		if err := store.Add(service); err != nil {
			t.Fatal(err)
		}
	}
	add("v1.", apiregistrationv1.ConditionTrue)
	add("v1.apps", apiregistrationv1.ConditionFalse)
	if err := check.Check(nil); err == nil || !strings.HasSuffix(err.Error(), ": v1.apps") {
		t.Errorf("one is not available: %v", err)
	}
	add("v1.apps", apiregistrationv1.ConditionTrue)
	if err := check.Check(nil); err != nil {
		t.Error(err)
	}
}
