// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is policy.
func Group() generic.Group {
	return generic.Group{
		Name:     policyv1.GroupName,
		Priority: 17100,
		Scheme:   []func(*runtime.Scheme) error{policyv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{PodDisruptionBudget}}},
	}
}

// PodDisruptionBudget limits how many pods of a set may be evicted at the same time.
var PodDisruptionBudget = generic.Kind[*policyv1.PodDisruptionBudget]{
	Name: "PodDisruptionBudget", Plural: "poddisruptionbudgets", ShortNames: []string{"pdb"},
	New:     func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
	NewList: func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
	Spec:    func(b *policyv1.PodDisruptionBudget) any { return &b.Spec },
	Status:  func(b *policyv1.PodDisruptionBudget) any { return &b.Status },
	Prepare: func(_ context.Context, b, old *policyv1.PodDisruptionBudget) { dropReservedLabel(b, old) },
	// An update must not overwrite an eviction that has been counted.
	RequireResourceVersion: true,

	Validate: func(_ context.Context, c *check.Checker, b *policyv1.PodDisruptionBudget) {
		validateSpec(c, &b.Spec)
	},
	StatusUpdate: generic.Update[*policyv1.PodDisruptionBudget]{Validate: validateStatus},
	Metadata: generic.Metadata{
		// Names were not validated when budgets were introduced, so some may be invalid.
		Loose:        func(context.Context) bool { return true },
		AnyFinalizer: true,
	},

	Columns: []generic.Column[*policyv1.PodDisruptionBudget]{
		{Name: "Min Available", Description: "The minimum number of pods that must be available.", Cell: func(b *policyv1.PodDisruptionBudget) any { return orNotApplicable(b.Spec.MinAvailable) }},
		{Name: "Max Unavailable", Description: "The maximum number of pods that may be unavailable.", Cell: func(b *policyv1.PodDisruptionBudget) any { return orNotApplicable(b.Spec.MaxUnavailable) }},
		{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time.", Cell: func(b *policyv1.PodDisruptionBudget) any { return b.Status.DisruptionsAllowed }},
	},
}

func orNotApplicable(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

// matchNothingLabel represents the empty selector of v1beta1, which matched no pod, in v1, where an
// empty selector matches all.
const matchNothingLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

func dropReservedLabel(b, old *policyv1.PodDisruptionBudget) {
	selector := b.Spec.Selector
	if selector == nil || old != nil && equality.Semantic.DeepEqual(selector, old.Spec.Selector) {
		return
	}
	matchesNothing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: matchNothingLabel, Operator: metav1.LabelSelectorOpExists}}}
	if equality.Semantic.DeepEqual(selector, matchesNothing) {
		return
	}
	selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == matchNothingLabel })
}

func validateSpec(c *check.Checker, spec *policyv1.PodDisruptionBudgetSpec) {
	path := field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		c.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set")
	}
	countOrPercent(c, spec.MinAvailable, path.Child("minAvailable"))
	countOrPercent(c, spec.MaxUnavailable, path.Child("maxUnavailable"))
	c.LabelSelector(path.Child("selector"), spec.Selector)
	check.OptionalOneOf(c, path.Child("unhealthyPodEvictionPolicy"), spec.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
}

// countOrPercent requires a number of pods or a percentage.
func countOrPercent(c *check.Checker, value *intstr.IntOrString, path *field.Path) {
	if value == nil {
		return
	}
	if value.Type == intstr.Int {
		c.NonNegative(path, int64(value.IntVal))
		return
	}
	problems := utilvalidation.IsValidPercent(value.StrVal)
	c.Invalid(path, *value, problems...)
	if n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%")); len(problems) == 0 && err == nil && n > 100 {
		c.Invalid(path, *value, "must not be greater than 100%")
	}
}

func validateStatus(_ context.Context, c *check.Checker, b, _ *policyv1.PodDisruptionBudget) {
	path, s := field.NewPath("status"), &b.Status
	c.Add(metavalidation.ValidateConditions(s.Conditions, path.Child("conditions"))...)
	c.NonNegative(path.Child("disruptionsAllowed"), int64(s.DisruptionsAllowed))
	c.NonNegative(path.Child("currentHealthy"), int64(s.CurrentHealthy))
	c.NonNegative(path.Child("desiredHealthy"), int64(s.DesiredHealthy))
	c.NonNegative(path.Child("expectedPods"), int64(s.ExpectedPods))
}
