// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

const memberOfGang = `{"metadata":{"name":"member"},"spec":{"schedulingGroup":{"podGroupName":"gang"},"containers":[{"name":"c","image":"any"}]}}`

// TestGangsAreOff: by default there are no PodGroups, and a pod's group is dropped.
func TestGangsAreOff(t *testing.T) {
	if got := server.do(t, server.admin, http.MethodGet, "/apis/scheduling.k8s.io/v1beta1", ""); got.code != http.StatusNotFound {
		t.Errorf("%d %s", got.code, got.body)
	}
	got := server.do(t, server.admin, http.MethodPost, "/api/v1/namespaces/"+server.namespace(t)+"/pods", memberOfGang)
	if got.code != http.StatusCreated || strings.Contains(got.body, `"podGroupName":`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// TestGangs: PodGroups and Workloads have upstream's defaults, rules and columns, and a pod's group
// is immutable.
func TestGangs(t *testing.T) {
	s := withRuntimeConfig(t, map[string]string{"scheduling.k8s.io/v1beta1": "true"})
	namespace := s.namespace(t)
	groups, pods := "/apis/scheduling.k8s.io/v1beta1/namespaces/"+namespace+"/podgroups", "/api/v1/namespaces/"+namespace+"/pods"
	workloads := strings.Replace(groups, "podgroups", "workloads", 1)
	const merge, table = "application/merge-patch+json", "application/json;as=Table;v=v1;g=meta.k8s.io"
	steps := []struct {
		name, method, path, body, accept string
		code                             int
		want, without                    []string
	}{
		{"discovery", http.MethodGet, "/apis/scheduling.k8s.io/v1beta1", "", "", 200, []string{`"podgroups/status"`, `"workloads"`}, []string{"priorityclasses", "compositepodgroups"}},
		{"OpenAPI", http.MethodGet, "/openapi/v3/apis/scheduling.k8s.io/v1beta1", "", "", 200, []string{"io.k8s.api.scheduling.v1beta1.PodGroup"}, nil},
		{"no policy", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{}}}`, "", 422, []string{"spec.schedulingPolicy: Invalid value", "must specify one of: `basic`, `gang`"}, nil},
		{"two policies", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{"basic":{},"gang":{"minCount":2}}}}`, "", 422, []string{"must specify exactly one of: `basic`, `gang`"}, nil},
		{"no count", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{"gang":{"minCount":-1}}}}`, "", 422, []string{"spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"}, nil},
		{"create", http.MethodPost, groups, `{"metadata":{"name":"gang"},"spec":{"schedulingPolicy":{"gang":{"minCount":3}},"workloadRef":{"workloadName":"w","templateName":"t"},"schedulingConstraints":{"topology":[{"key":"zone"}]},"preemptionPolicy":"Never"}}`, "", 201,
			[]string{`"disruptionMode":{"single":{}}`, `"scheduling.k8s.io/podgroup-protection"`, `"priority":0`}, []string{`"topology":`, `"preemptionPolicy":"Never"}`}},
		{"table", http.MethodGet, groups, "", table, 200, []string{`"cells":["gang","Gang","w","Pending",`}, nil},
		{"other count", http.MethodPatch, groups + "/gang", `{"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}`, "", 200, []string{`"minCount":2`}, nil},
		{"other policy", http.MethodPatch, groups + "/gang", `{"spec":{"schedulingPolicy":{"gang":null,"basic":{}}}}`, "", 422, []string{"spec.schedulingPolicy"}, nil},
		{"other mode", http.MethodPatch, groups + "/gang", `{"spec":{"disruptionMode":{"single":null,"all":{}}}}`, "", 422, []string{"spec.disruptionMode: Invalid value", "field is immutable"}, nil},
		{"status", http.MethodPatch, groups + "/gang/status", `{"spec":{"schedulingPolicy":{"gang":{"minCount":9}}},"status":{"conditions":[{"type":"PodGroupInitiallyScheduled","status":"True","reason":"Scheduled","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "", 200, []string{`"minCount":2`, `"reason":"Scheduled"`}, nil},
		{"workload", http.MethodPost, workloads, `{"metadata":{"name":"w"},"spec":{"podGroupTemplates":[{"name":"t","schedulingPolicy":{"gang":{"minCount":3}}}]}}`, "", 201, nil, nil},
		{"no templates", http.MethodPost, workloads, `{"metadata":{"name":"bad"},"spec":{"compositePodGroupTemplates":[{"name":"t"}]}}`, "", 422, []string{"spec: Invalid value"}, nil},
		{"claims", http.MethodPost, groups, `{"metadata":{"name":"claims"},"spec":{"schedulingPolicy":{"basic":{}},"resourceClaims":[{"name":"a","resourceClaimName":"x"},{"name":"b","resourceClaimTemplateName":"y"}]}}`, "", 201, []string{`"resourceClaimTemplateName":"y"`}, nil},
		{"immutable claims", http.MethodPatch, groups + "/claims", `{"spec":{"resourceClaims":null}}`, "", 422, []string{"spec.resourceClaims: Invalid value", "field is immutable"}, nil},
		{"names of claims", http.MethodPatch, groups + "/claims/status", `{"status":{"resourceClaimStatuses":[{"name":"b","resourceClaimName":"claims-b"}]}}`, "", 200, []string{`"resourceClaimName":"claims-b"`}, nil},
		{"unknown claim", http.MethodPatch, groups + "/claims/status", `{"status":{"resourceClaimStatuses":[{"name":"c"}]}}`, "", 422, []string{`status.resourceClaimStatuses[0].name: Invalid value: "c": must match the name of an entry in`}, nil},
		{"two sources", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{"basic":{}},"resourceClaims":[{"name":"a","resourceClaimName":"x","resourceClaimTemplateName":"y"}]}}`, "", 422, []string{"spec.resourceClaims[0]: Invalid value", "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`"}, nil},
		{"same name", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{"basic":{}},"resourceClaims":[{"name":"a","resourceClaimName":"x"},{"name":"a","resourceClaimName":"z"}]}}`, "", 422, []string{"spec.resourceClaims[1]: Duplicate value"}, nil},
		{"too many claims", http.MethodPost, groups, `{"metadata":{"name":"bad"},"spec":{"schedulingPolicy":{"basic":{}},"resourceClaims":[{"name":"a","resourceClaimName":"x"},{"name":"b","resourceClaimName":"x"},{"name":"c","resourceClaimName":"x"},{"name":"d","resourceClaimName":"x"},{"name":"e","resourceClaimName":"x"}]}}`, "", 422, []string{"spec.resourceClaims: Too many: 5: must have at most 4 items"}, nil},
		{"claims of a template", http.MethodPost, workloads, `{"metadata":{"name":"claims"},"spec":{"podGroupTemplates":[{"name":"t","schedulingPolicy":{"basic":{}},"resourceClaims":[{"name":"a","resourceClaimName":"x"}]}]}}`, "", 201, []string{`"resourceClaimName":"x"`}, nil},
		{"pod", http.MethodPost, pods, memberOfGang, "", 201, []string{`"schedulingGroup":{"podGroupName":"gang"}`}, nil},
		{"another group", http.MethodPatch, pods + "/member", `{"spec":{"schedulingGroup":{"podGroupName":"other"}}}`, "", 422, []string{"pod updates may not change fields other than"}, nil},
		{"deletion", http.MethodDelete, groups + "/gang", "", "", 200, []string{`"deletionTimestamp"`}, nil},
	}
	for _, step := range steps {
		headers := []string{"Accept", step.accept}
		if step.method == http.MethodPatch {
			headers = append(headers, "Content-Type", merge)
		}
		got := s.do(t, s.admin, step.method, step.path, step.body, headers...)
		if got.code != step.code {
			t.Errorf("%s: %d %s", step.name, got.code, got.body)
		}
		for _, want := range step.want {
			if !strings.Contains(strings.ReplaceAll(got.body, `\"`, `"`), want) {
				t.Errorf("%s: no %s in %s", step.name, want, got.body)
			}
		}
		for _, unwanted := range step.without {
			if strings.Contains(got.body, unwanted) && got.code < 300 {
				t.Errorf("%s: %s in %s", step.name, unwanted, got.body)
			}
		}
	}
}
