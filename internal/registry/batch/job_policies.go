// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

const (
	maxPolicyRules       = 20
	maxExitCodes         = 255
	maxPodConditions     = 20
	maxSucceededIndexes  = 64 * 1024
	oneConditionRequired = "specifying one of OnExitCodes and OnPodConditions is required"
	bothConditions       = "specifying both OnExitCodes and OnPodConditions is not supported"
)

var (
	failureActions = []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}
	exitCodeOperators = []batchv1.PodFailurePolicyOnExitCodesOperator{
		batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn,
	}
	conditionStatuses = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
)

// oneOf requires a supported value. The error of an empty one lists them.
func oneOf[V ~string](c *check.Checker, path *field.Path, value V, supported []V) {
	if value == "" {
		c.Required(path, fmt.Sprintf("valid values: %q", supported))
		return
	}
	check.OneOf(c, path, value, supported...)
}

// validateFailurePolicy checks the rules for failed pods (KEP-3329).
func validateFailurePolicy(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	if spec.PodFailurePolicy == nil {
		return
	}
	containers := sets.Set[string]{}
	for _, list := range [][]corev1.Container{spec.Template.Spec.Containers, spec.Template.Spec.InitContainers} {
		for i := range list {
			containers.Insert(list[i].Name)
		}
	}
	rules := spec.PodFailurePolicy.Rules
	c.MaxItems(path.Child("rules"), len(rules), maxPolicyRules)
	for i := range rules {
		validateFailureRule(c, &rules[i], spec.BackoffLimitPerIndex != nil, containers, path.Child("rules").Index(i))
	}
}

func validateFailureRule(c *check.Checker, rule *batchv1.PodFailurePolicyRule, limitPerIndex bool, containers sets.Set[string], path *field.Path) {
	oneOf(c, path.Child("action"), rule.Action, failureActions)
	if rule.Action == batchv1.PodFailurePolicyActionFailIndex && !limitPerIndex {
		c.Invalid(path.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set")
	}
	if rule.OnExitCodes != nil {
		validateExitCodes(c, rule.OnExitCodes, containers, path.Child("onExitCodes"))
	}
	validatePodConditions(c, rule.OnPodConditions, path.Child("onPodConditions"))
	switch codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
	case codes && conditions:
		c.Invalid(path, field.OmitValueType{}, bothConditions)
	case !codes && !conditions:
		c.Invalid(path, field.OmitValueType{}, oneConditionRequired)
	}
}

func validatePodConditions(c *check.Checker, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) {
	c.MaxItems(path, len(patterns), maxPodConditions)
	for i, pattern := range patterns {
		for _, problem := range validation.IsQualifiedName(string(pattern.Type)) {
			c.Invalid(path.Index(i).Child("type"), string(pattern.Type), problem)
		}
		oneOf(c, path.Index(i).Child("status"), pattern.Status, conditionStatuses)
	}
}

func validateExitCodes(c *check.Checker, codes *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string], path *field.Path) {
	oneOf(c, path.Child("operator"), codes.Operator, exitCodeOperators)
	if name := codes.ContainerName; name != nil && !containers.Has(*name) {
		c.Invalid(path.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template")
	}
	values := path.Child("values")
	if len(codes.Values) == 0 {
		c.Invalid(values, codes.Values, "at least one value is required")
	}
	c.MaxItems(values, len(codes.Values), maxExitCodes)
	seen := sets.Set[int32]{}
	for i, code := range codes.Values {
		if code == 0 && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			c.Invalid(values.Index(i), code, "must not be 0 for the In operator")
		}
		check.Unique(c, values.Index(i), seen, code)
	}
	if !slices.IsSorted(codes.Values) {
		c.Invalid(values, codes.Values, "must be ordered")
	}
}

// validateSuccessPolicy checks the rules for the indexes that suffice for a Job to succeed
// (KEP-3998).
func validateSuccessPolicy(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	if spec.SuccessPolicy == nil {
		return
	}
	if !isIndexed(spec) {
		c.Invalid(path, *spec.SuccessPolicy, "requires indexed completion mode")
		return
	}
	if spec.Completions == nil {
		return // already reported, and the limit is unknown
	}
	rules := spec.SuccessPolicy.Rules
	if len(rules) == 0 {
		c.Required(path.Child("rules"), "at least one rules must be specified when the successPolicy is specified")
	}
	c.MaxItems(path.Child("rules"), len(rules), maxPolicyRules)
	for i := range rules {
		validateSuccessRule(c, &rules[i], *spec.Completions, path.Child("rules").Index(i))
	}
}

func validateSuccessRule(c *check.Checker, rule *batchv1.SuccessPolicyRule, completions int32, path *field.Path) {
	count, indexes := rule.SucceededCount, rule.SucceededIndexes
	if count == nil && indexes == nil {
		c.Required(path, "at least one of succeededCount or succeededIndexes must be specified")
	}
	var listed int32
	if indexes != nil {
		at := path.Child("succeededIndexes")
		c.MaxBytes(at, *indexes, maxSucceededIndexes)
		var err error
		if listed, err = countIndexes(*indexes, completions); err != nil {
			c.Invalid(at, *indexes, "error parsing succeededIndexes: "+err.Error())
		}
	}
	if count == nil {
		return
	}
	at := path.Child("succeededCount")
	c.NonNegative(at, int64(*count))
	requireAtMost(c, at, count, completions, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
	if indexes != nil {
		requireAtMost(c, at, count, listed, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", listed))
	}
}
