// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/core/workload"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// This file holds the rules that workloads share: for replicas, selectors and templates.

// validateReplicated checks replicas, selector and template of a Deployment or ReplicaSet.
func validateReplicated(c *check.Checker, replicas *int32, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, spec *field.Path) {
	check.NonNegativePtr(c, spec.Child("replicas"), replicas)
	path := spec.Child("selector")
	if selector == nil {
		c.Required(path, "")
	}
	validateSelector(c, selector, "deployment", path)
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		c.Invalid(path, selector, "invalid label selector")
		return
	}
	validateTemplate(c, template, matches, spec.Child("template"))
}

// validateSelector checks a selector, which must not be empty. Callers report a missing one.
func validateSelector(c *check.Checker, selector *metav1.LabelSelector, kind string, path *field.Path) {
	if selector == nil {
		return
	}
	c.LabelSelector(path, selector)
	if isEmpty(selector) {
		c.Invalid(path, selector, "empty selector is invalid for "+kind)
	}
}

// validateSelectorUpdate forbids to change the selector, except in the versions that allowed it.
func validateSelectorUpdate(ctx context.Context, c *check.Checker, selector, old *metav1.LabelSelector) {
	if !MutableSelectors(generic.RequestVersion(ctx)) {
		c.Immutable(field.NewPath("spec", "selector"), selector, old)
	}
}

func isEmpty(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// validateTemplate requires a template that the selector matches and whose pods restart always.
func validateTemplate(c *check.Checker, template *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path) {
	workload.ValidateSelected(c, template, selector, path)
	podspec.ValidatePodTemplateSpec(c, template, path)
	workload.ValidateRestartsAlways(c, &template.Spec, "ReplicaSet", path.Child("spec"))
}

// validateCollisions forbids to decrement the count, which is part of the hash in names that are in
// use.
func validateCollisions(c *check.Checker, status *field.Path, count, before *int32) {
	path := status.Child("collisionCount")
	check.NonNegativePtr(c, path, count)
	if before != nil && (count == nil || *count < *before) {
		c.Invalid(path, ptr.Deref(count, 0), "cannot be decremented")
	}
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
	c.Invalid(path, *value, utilvalidation.IsValidPercent(value.StrVal)...)
}

// percent parses a percentage. It reports false for any other value.
func percent(value *intstr.IntOrString) (int, bool) {
	if value == nil || value.Type != intstr.String || len(utilvalidation.IsValidPercent(value.StrVal)) != 0 {
		return 0, false
	}
	var n int
	_, err := fmt.Sscanf(value.StrVal, "%d%%", &n)
	return n, err == nil
}

func isZero(value *intstr.IntOrString) bool {
	if n, ok := percent(value); ok {
		return n == 0
	}
	return value == nil || value.IntValue() == 0
}

func atMost100Percent(c *check.Checker, value *intstr.IntOrString, path *field.Path) {
	if n, ok := percent(value); ok && n > 100 {
		c.Invalid(path, *value, "must not be greater than 100%")
	}
}

// dropAlphaFields drops fields of disabled features from a template.
func dropAlphaFields[T generic.Object](template func(T) *corev1.PodTemplateSpec) func(context.Context, T, T) {
	return func(ctx context.Context, obj, old T) { podspec.DropAlphaTemplateFields(ctx, obj, old, template) }
}

// warnings returns the warnings for the name of a new workload, which its pods' names contain, and
// for a new or changed template.
func warnings[T generic.Object](template func(T) *corev1.PodTemplateSpec) func(context.Context, T, T) []string {
	path := field.NewPath("spec", "template")
	return func(_ context.Context, obj, old T) []string {
		var none T
		if any(old) != any(none) {
			if equality.Semantic.DeepEqual(template(obj), template(old)) {
				return nil
			}
			return podspec.TemplateWarnings(template(obj), path)
		}
		var out []string
		if problems := utilvalidation.IsDNS1123Label(obj.GetName()); len(problems) > 0 {
			out = append(out, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", problems))
		}
		return append(out, podspec.TemplateWarnings(template(obj), path)...)
	}
}

// templateColumns returns the wide columns of workloads. StatefulSets have no column for the
// selector.
func templateColumns[T generic.Object](spec func(T) corev1.PodSpec, selector func(T) *metav1.LabelSelector, doc string) []generic.Column[T] {
	return append(containerColumns(spec),
		generic.Column[T]{Name: "Selector", Wide: true, Description: doc, Cell: func(obj T) any { return metav1.FormatLabelSelector(selector(obj)) }})
}

func containerColumns[T generic.Object](spec func(T) corev1.PodSpec) []generic.Column[T] {
	return []generic.Column[T]{
		{Name: "Containers", Wide: true, Description: "Names of each container in the template.", Cell: func(obj T) any { return core.ContainerNames(spec(obj)) }},
		{Name: "Images", Wide: true, Description: "Images referenced by each container in the template.", Cell: func(obj T) any { return core.ContainerImages(spec(obj)) }},
	}
}
