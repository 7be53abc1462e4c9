// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestLimitRange(t *testing.T) {
	item := func(kind corev1.LimitType, min, max, limit, request, ratio string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: kind, Min: amounts(min), Max: amounts(max), Default: amounts(limit), DefaultRequest: amounts(request), MaxLimitRequestRatio: amounts(ratio)}
	}
	for name, test := range map[string]struct {
		items []corev1.LimitRangeItem
		want  []string
	}{
		"good":                               {[]corev1.LimitRangeItem{item("Container", "cpu=1", "cpu=4", "cpu=3", "cpu=2", "cpu=4"), item("Pod", "cpu=1", "memory=1Gi", "", "", "")}, nil},
		"custom type":                        {[]corev1.LimitRangeItem{item("example.com/Volume", "storage=1", "", "", "", "")}, nil},
		"type":                               {[]corev1.LimitRangeItem{item("Node", "", "", "", "", "")}, []string{`spec.limits[0].type: Invalid value: "Node": must be a standard limit type or fully qualified`}},
		"no type":                            {[]corev1.LimitRangeItem{item("a b", "", "", "", "", "")}, []string{`spec.limits[0].type: Invalid value: "a b": name part must consist of`}},
		"twice":                              {[]corev1.LimitRangeItem{item("Pod", "", "", "", "", ""), item("Pod", "", "", "", "", "")}, []string{`spec.limits[1].type: Duplicate value: "Pod"`}},
		"no resource":                        {[]corev1.LimitRangeItem{item("Container", "gold=1", "", "", "", "")}, []string{"spec.limits[0].min[gold]: Invalid value: \"gold\": must be a standard resource for containers", "spec.limits[0].min[gold]: Invalid value: \"gold\": must be a standard resource type or fully qualified"}},
		"not a resource of containers":       {[]corev1.LimitRangeItem{item("Container", "", "storage=1", "", "", "")}, []string{`spec.limits[0].max[storage]: Invalid value: "storage": must be a standard resource for containers`}},
		"defaults of pods":                   {[]corev1.LimitRangeItem{item("Pod", "", "", "cpu=1", "gold=1", "")}, []string{"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'", "spec.limits[0].defaultRequest: Forbidden"}},
		"claims":                             {[]corev1.LimitRangeItem{item("PersistentVolumeClaim", "", "", "", "", "")}, []string{"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"}},
		"min > max":                          {[]corev1.LimitRangeItem{item("Container", "cpu=2", "cpu=1", "", "", "")}, []string{`spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`}},
		"min > defaults":                     {[]corev1.LimitRangeItem{item("Container", "cpu=2", "", "cpu=1", "cpu=1", "")}, []string{`spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1`, `spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1`}},
		"defaults > max":                     {[]corev1.LimitRangeItem{item("Container", "", "cpu=1", "cpu=2", "cpu=2", "")}, []string{`spec.limits[0].default[cpu]: Invalid value: "1": default value 2 is greater than max value 1`, `spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than max value 1`}},
		"request > limit":                    {[]corev1.LimitRangeItem{item("Container", "", "", "cpu=1", "cpu=2", "")}, []string{`spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1`}},
		"ratio < 1":                          {[]corev1.LimitRangeItem{item("Container", "", "", "", "", "cpu=500m")}, []string{`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1`}},
		"ratio > max/min":                    {[]corev1.LimitRangeItem{item("Container", "cpu=1", "cpu=1500m", "", "", "cpu=2")}, []string{`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "2": ratio 2 is greater than max/min = 1.500000`}},
		"resource that is not overcommitted": {[]corev1.LimitRangeItem{item("Container", "", "", "example.com/gpu=2", "example.com/gpu=1", "")}, []string{`spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in example.com/gpu`}},
	} {
		wantProblems(t, name, checktest.Errors(t.Context(), LimitRange.Validate, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: test.items}}), test.want...)
	}
	unnamed := &corev1.LimitRange{}
	if LimitRange.Prepare(t.Context(), unnamed, nil); unnamed.Name == "" {
		t.Error("a LimitRange without a name has no error")
	}
}

func TestResourceQuota(t *testing.T) {
	selected := func(scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: scope, Operator: operator, Values: values}}}
	}
	for name, test := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		want []string
	}{
		"good":              {corev1.ResourceQuotaSpec{Hard: amounts("cpu=1 requests.storage=1Gi pods=3 count/jobs.batch=5 requests.nvidia.com/gpu=1 gold.storageclass.storage.k8s.io/requests.storage=1Gi hugepages-2Mi=4Mi")}, nil},
		"name":              {corev1.ResourceQuotaSpec{Hard: amounts("gold=1")}, []string{`spec.hard[gold]: Invalid value: "gold": must be a standard resource for quota`, `spec.hard[gold]: Invalid value: "gold": must be a standard resource type or fully qualified`}},
		"storage":           {corev1.ResourceQuotaSpec{Hard: amounts("storage=1")}, []string{`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`}},
		"negative":          {corev1.ResourceQuotaSpec{Hard: amounts("cpu=-1")}, []string{`spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		"fraction of a pod": {corev1.ResourceQuotaSpec{Hard: amounts("pods=500m")}, []string{`spec.hard[pods]: Invalid value: "500m": must be an integer`}},
		"scopes":            {corev1.ResourceQuotaSpec{Hard: amounts("pods=1 cpu=1"), Scopes: []corev1.ResourceQuotaScope{"Terminating", "NotBestEffort"}}, nil},
		"scope":             {corev1.ResourceQuotaSpec{Hard: amounts("pods=1"), Scopes: []corev1.ResourceQuotaScope{"Idle"}}, []string{`spec.scopes: Invalid value: ["Idle"]: unsupported scope`}},
		"out of scope":      {corev1.ResourceQuotaSpec{Hard: amounts("cpu=1 services=1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}, []string{`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`, `spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`}},
		"conflict":          {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Terminating", "NotTerminating"}}, []string{"spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes"}},
		"selector":          {corev1.ResourceQuotaSpec{Hard: amounts("pods=1"), ScopeSelector: selected("PriorityClass", "In", "high")}, nil},
		"attributes":        {corev1.ResourceQuotaSpec{Hard: amounts("persistentvolumeclaims=1 requests.storage=1"), ScopeSelector: selected("VolumeAttributesClass", "In", "gold")}, nil},
		"no values":         {corev1.ResourceQuotaSpec{ScopeSelector: selected("PriorityClass", "NotIn")}, []string{"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"}},
		"values":            {corev1.ResourceQuotaSpec{ScopeSelector: selected("PriorityClass", "Exists", "x")}, []string{"spec.scopeSelector.matchExpressions.values: Invalid value: [\"x\"]: must be no value"}},
		"no operator":       {corev1.ResourceQuotaSpec{ScopeSelector: selected("PriorityClass", "Like")}, []string{`spec.scopeSelector.matchExpressions.operator: Invalid value: "Like": not a valid selector operator`}},
		"no name":           {corev1.ResourceQuotaSpec{ScopeSelector: selected("BestEffort", "DoesNotExist")}, []string{`spec.scopeSelector.matchExpressions.operator: Invalid value: "DoesNotExist": must be 'Exists' when scope is any of`}},
		"unknown":           {corev1.ResourceQuotaSpec{ScopeSelector: selected("Idle", "Exists")}, []string{`spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Idle": unsupported scope`}},
		"not selected":      {corev1.ResourceQuotaSpec{Hard: amounts("services=1"), ScopeSelector: selected("PriorityClass", "Exists")}, []string{"spec.scopeSelector.matchExpressions: Invalid value: {\"matchExpressions\":[{\"scopeName\":\"PriorityClass\",\"operator\":\"Exists\"}]}: unsupported scope applied to resource"}},
	} {
		wantProblems(t, name, checktest.Errors(t.Context(), ResourceQuota.Validate, &corev1.ResourceQuota{Spec: test.spec}), test.want...)
	}
	old := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Terminating", "NotBestEffort"}}}
	reordered := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts("cpu=1"), Scopes: []corev1.ResourceQuotaScope{"NotBestEffort", "Terminating"}}}
	wantProblems(t, "reordered", checktest.UpdateErrors(t.Context(), ResourceQuota.ValidateUpdate, reordered, old))
	wantProblems(t, "fewer scopes", checktest.UpdateErrors(t.Context(), ResourceQuota.ValidateUpdate, &corev1.ResourceQuota{}, old), "spec.scopes: Invalid value: null: field is immutable")
	status := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: amounts("gold=1"), Used: amounts("pods=-1")}}
	wantProblems(t, "status", checktest.UpdateErrors(t.Context(), ResourceQuota.StatusUpdate.Validate, status, old), `status.hard[gold]: Invalid value: "gold"`, `status.hard[gold]: Invalid value: "gold"`, `status.used[pods]: Invalid value: "-1"`)
}

func TestQuotaColumns(t *testing.T) {
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts("requests.cpu=3 limits.cpu=2 memory=2Gi limits.memory=1Gi requests.storage=5")}}
	want := []string{"ResourceQuota requests.cpu (3) should be less than limits.cpu (2)", "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)"}
	if got := ResourceQuota.Warnings(t.Context(), q, nil); !slices.Equal(got, want) {
		t.Errorf("warnings %q", got)
	}
	if got := ResourceQuota.Warnings(t.Context(), q, q); len(got) != 0 {
		t.Errorf("on update %q", got)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: amounts("pods=5 cpu=2 limits.cpu=3"), Used: amounts("pods=1 cpu=500m")}
	if diff := cmp.Diff([]any{"cpu: 500m/2, pods: 1/5", "limits.cpu: 0/3"}, cells(ResourceQuota, q)); diff != "" {
		t.Error(diff)
	}
}
