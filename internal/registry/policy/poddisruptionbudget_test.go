// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// wantErrors compares errors by prefix, in any order.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

func TestBudgets(t *testing.T) {
	two, percent, none, much := intstr.FromInt32(2), intstr.FromString("50%"), intstr.FromInt32(-1), intstr.FromString("101%")
	type spec = policyv1.PodDisruptionBudgetSpec
	for name, test := range map[string]struct {
		spec spec
		want []string
	}{
		"nothing":          {spec{}, nil},
		"count":            {spec{MinAvailable: &two, Selector: &metav1.LabelSelector{}}, nil},
		"percent":          {spec{MaxUnavailable: &percent}, nil},
		"both":             {spec{MinAvailable: &two, MaxUnavailable: &two}, []string{"spec: Invalid value: {"}},
		"negative":         {spec{MinAvailable: &none}, []string{"spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"}},
		"too much":         {spec{MaxUnavailable: &much}, []string{`spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%`}},
		"not a percentage": {spec{MaxUnavailable: new(intstr.FromString("many"))}, []string{`spec.maxUnavailable: Invalid value: "many": a valid percent string must be`}},
		"selector":         {spec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}}, []string{`spec.selector.matchLabels: Invalid value: "b c"`}},
		"policy":           {spec{UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow)}, nil},
		"unknown policy":   {spec{UnhealthyPodEvictionPolicy: new(policyv1.UnhealthyPodEvictionPolicyType("Never"))}, []string{`spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"`}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), PodDisruptionBudget.Validate, &policyv1.PodDisruptionBudget{Spec: test.spec}), test.want...)
	}
}

func TestStatus(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{
		DisruptionsAllowed: -1, CurrentHealthy: -1, DesiredHealthy: -1, ExpectedPods: -1,
		Conditions: []metav1.Condition{{Type: "DisruptionAllowed", Status: "Perhaps", Reason: "R", LastTransitionTime: metav1.Now()}},
	}}
	wantErrors(t, "status", checktest.UpdateErrors(t.Context(), PodDisruptionBudget.StatusUpdate.Validate, b, b),
		"status.disruptionsAllowed: Invalid value: -1", "status.currentHealthy: Invalid value: -1", "status.desiredHealthy: Invalid value: -1",
		"status.expectedPods: Invalid value: -1", `status.conditions[0].status: Unsupported value: "Perhaps"`)
}

func TestReservedLabel(t *testing.T) {
	nothing := metav1.LabelSelectorRequirement{Key: matchNothingLabel, Operator: metav1.LabelSelectorOpExists}
	other := metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists}
	for name, test := range map[string]struct {
		old, given, want []metav1.LabelSelectorRequirement
	}{
		"alone":    {nil, []metav1.LabelSelectorRequirement{nothing}, []metav1.LabelSelectorRequirement{nothing}},
		"combined": {nil, []metav1.LabelSelectorRequirement{nothing, other}, []metav1.LabelSelectorRequirement{other}},
		"kept":     {[]metav1.LabelSelectorRequirement{nothing, other}, []metav1.LabelSelectorRequirement{nothing, other}, []metav1.LabelSelectorRequirement{nothing, other}},
	} {
		of := func(r []metav1.LabelSelectorRequirement) *policyv1.PodDisruptionBudget {
			return &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: slices.Clone(r)}}}
		}
		b, old := of(test.given), (*policyv1.PodDisruptionBudget)(nil)
		if test.old != nil {
			old = of(test.old)
		}
		PodDisruptionBudget.Prepare(t.Context(), b, old)
		if diff := cmp.Diff(test.want, b.Spec.Selector.MatchExpressions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestColumns(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("50%"))}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3}}
	var got []any
	for _, column := range PodDisruptionBudget.Columns {
		got = append(got, column.Cell(b))
	}
	if diff := cmp.Diff([]any{"N/A", "50%", int32(3)}, got); diff != "" {
		t.Error(diff)
	}
}
