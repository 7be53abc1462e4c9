// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

const (
	maxWindowSeconds = 3600
	maxPeriodSeconds = 1800
)

// checker checks an autoscaler.
type checker struct {
	*check.Checker
	// targetVersion and objectVersion check the apiVersion of the scaled and of the measured
	// object.
	targetVersion, objectVersion versionRule
}

// versionRule returns the problem of an apiVersion.
type versionRule func(apiVersion string) error

func anyVersion(string) error { return nil }

func groupOptional(apiVersion string) error {
	_, err := schema.ParseGroupVersion(apiVersion)
	return err
}

func groupRequired(apiVersion string) error {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && gv.Group == "" {
		return errors.New("apiVersion must specify API group")
	}
	return err
}

func validateAutoscaler(_ context.Context, to *check.Checker, h *autoscalingv2.HorizontalPodAutoscaler) {
	c := checker{Checker: to, targetVersion: versionRuleFor(h), objectVersion: groupOptional}
	c.spec(&h.Spec, field.NewPath("spec"))
}

// versionRuleFor requires a group in the apiVersion of the target, unless it is a
// ReplicationController, which is in the legacy group.
func versionRuleFor(h *autoscalingv2.HorizontalPodAutoscaler) versionRule {
	if h.Spec.ScaleTargetRef.Kind == "ReplicationController" {
		return groupOptional
	}
	return groupRequired
}

// validateAutoscalerUpdate accepts an invalid apiVersion that was stored before.
func validateAutoscalerUpdate(_ context.Context, to *check.Checker, h, old *autoscalingv2.HorizontalPodAutoscaler) {
	c := checker{Checker: to, targetVersion: versionRuleFor(h), objectVersion: groupOptional}
	if ref, was := h.Spec.ScaleTargetRef, old.Spec.ScaleTargetRef; ref.APIVersion == was.APIVersion && ref.Kind == was.Kind {
		c.targetVersion = anyVersion
	}
	if slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && groupOptional(m.Object.DescribedObject.APIVersion) != nil
	}) {
		c.objectVersion = anyVersion
	}
	c.spec(&h.Spec, field.NewPath("spec"))
}

func validateAutoscalerStatus(_ context.Context, c *check.Checker, h, _ *autoscalingv2.HorizontalPodAutoscaler) {
	path := field.NewPath("status")
	for i, condition := range h.Status.Conditions {
		check.NonNegativePtr(c, path.Child("conditions").Index(i).Child("observedGeneration"), condition.ObservedGeneration)
	}
	c.NonNegative(path.Child("currentReplicas"), int64(h.Status.CurrentReplicas))
	c.NonNegative(path.Child("desiredReplicas"), int64(h.Status.DesiredReplicas))
}

func (c checker) spec(spec *autoscalingv2.HorizontalPodAutoscalerSpec, path *field.Path) {
	least, most := spec.MinReplicas, spec.MaxReplicas
	maxPath := path.Child("maxReplicas")
	if least != nil && *least < 0 {
		c.Declared().Add(field.Invalid(path.Child("minReplicas"), *least, "must be greater than or equal to 0").WithOrigin("minimum"))
	}
	switch {
	case most == 0:
		c.Declared().Required(maxPath, "must be set and greater than 0")
	case most < 0:
		c.Declared().Add(field.Invalid(maxPath, most, "must be greater than or equal to 1").WithOrigin("minimum"))
	}
	if least != nil && most < *least {
		c.Invalid(maxPath, most, "must be greater than or equal to `minReplicas`")
	}
	c.scaleTarget(spec.ScaleTargetRef, path.Child("scaleTargetRef"))
	c.metrics(spec.Metrics, least != nil && *least == 0, path.Child("metrics"))
	if behavior := spec.Behavior; behavior != nil {
		c.rules(behavior.ScaleUp, path.Child("behavior", "scaleUp"))
		c.rules(behavior.ScaleDown, path.Child("behavior", "scaleDown"))
	}
}

// scaleTarget checks a reference. It is also declared that kind and name are required.
func (c checker) scaleTarget(ref autoscalingv2.CrossVersionObjectReference, path *field.Path) {
	for _, err := range check.Run(func(target *check.Checker) {
		checker{Checker: target}.reference(ref, c.targetVersion, path)
	}) {
		if err.Type == field.ErrorTypeRequired {
			err = err.MarkCoveredByDeclarative()
		}
		c.Add(err)
	}
}

func (c checker) reference(ref autoscalingv2.CrossVersionObjectReference, rule versionRule, path *field.Path) {
	c.segment(ref.Kind, "", path.Child("kind"))
	c.segment(ref.Name, "", path.Child("name"))
	if err := rule(ref.APIVersion); err != nil {
		c.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error())
	}
}

// segment requires a name that can be a segment of a URL path.
func (c checker) segment(name, missing string, path *field.Path) {
	if name == "" {
		c.Required(path, missing)
		return
	}
	c.Invalid(path, name, content.IsPathSegmentName(name)...)
}

var (
	selects     = []autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect}
	policyTypes = []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}
)

func (c checker) rules(rules *autoscalingv2.HPAScalingRules, path *field.Path) {
	if rules == nil {
		return
	}
	if window := rules.StabilizationWindowSeconds; window != nil {
		at := path.Child("stabilizationWindowSeconds")
		switch {
		case *window < 0:
			c.Invalid(at, *window, "must be greater than or equal to zero")
		case *window > maxWindowSeconds:
			c.Invalid(at, *window, fmt.Sprintf("must be less than or equal to %d", maxWindowSeconds))
		}
	}
	check.OptionalOneOf(c, path.Child("selectPolicy"), rules.SelectPolicy, selects...)
	if len(rules.Policies) == 0 {
		c.Required(path.Child("policies"), "must specify at least one Policy")
	}
	for i := range rules.Policies {
		c.policy(&rules.Policies[i], path.Child("policies").Index(i))
	}
	if rules.Tolerance != nil && rules.Tolerance.Sign() < 0 {
		c.Add(field.Invalid(path.Child("tolerance"), rules.Tolerance.String(), validation.IsNegativeErrorMsg).WithOrigin("minimum"))
	}
}

func (c checker) policy(policy *autoscalingv2.HPAScalingPolicy, path *field.Path) {
	check.OneOf(c, path.Child("type"), policy.Type, policyTypes...)
	if policy.Value <= 0 {
		c.Invalid(path.Child("value"), policy.Value, "must be greater than zero")
	}
	switch period := policy.PeriodSeconds; {
	case period <= 0:
		c.Invalid(path.Child("periodSeconds"), period, "must be greater than zero")
	case period > maxPeriodSeconds:
		c.Invalid(path.Child("periodSeconds"), period, fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds))
	}
}
