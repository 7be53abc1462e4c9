// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

type taintRule = resourcev1.DeviceTaintRule

// deviceTaintRule returns the kind DeviceTaintRule, which taints the devices that it selects
// (KEP-5055).
func deviceTaintRule(c clock.PassiveClock) generic.Resource {
	return generic.Kind[*taintRule]{
		Name: "DeviceTaintRule", Plural: "devicetaintrules", ClusterScoped: true,
		New:     func() *taintRule { return &taintRule{} },
		NewList: func() runtime.Object { return &resourcev1.DeviceTaintRuleList{} },
		Spec:    func(r *taintRule) any { return &r.Spec },
		Status:  func(r *taintRule) any { return &r.Status },
		Prepare: func(_ context.Context, r, old *taintRule) { noteEffectChange(r, old, c) },
		StatusUpdate: generic.Update[*taintRule]{
			Prepare: func(_ context.Context, r, old *taintRule) {
				metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
			},
			Resets: []string{"metadata"},
			Validate: func(_ context.Context, c *check.Checker, r, _ *taintRule) {
				validateConditions(c, r.Status.Conditions, resourcev1.DeviceTaintRuleStatusMaxConditions, statusPath.Child("conditions"))
			},
		},
		Validate: func(_ context.Context, c *check.Checker, r *taintRule) {
			validateTaintRule(c, r, nil)
		},
		ValidateUpdate: func(_ context.Context, c *check.Checker, r, old *taintRule) {
			validateTaintRule(c, r, old)
		},
		RequireResourceVersion: true,
		Columns: []generic.Column[*taintRule]{
			{Name: "Key", Description: taintDoc["key"], Cell: func(r *taintRule) any { return r.Spec.Taint.Key }},
			{Name: "Value", Description: taintDoc["value"], Cell: func(r *taintRule) any { return r.Spec.Taint.Value }},
			{Name: "Effect", Description: taintDoc["effect"], Cell: func(r *taintRule) any { return string(r.Spec.Taint.Effect) }},
			{Name: "TimeAdded", Description: taintDoc["timeAdded"], Cell: timeAddedText},
		},
	}
}

var taintDoc = resourcev1.DeviceTaint{}.SwaggerDoc()

func timeAddedText(r *taintRule) any {
	added := r.Spec.Taint.TimeAdded
	if added == nil {
		return ""
	}
	return generic.Timed(func(c clock.PassiveClock) string { return generic.Age(c, *added) })
}

// noteEffectChange sets the time of a changed effect to now, unless the client sets it:
// tolerationSeconds count from it.
func noteEffectChange(r, old *taintRule, c clock.PassiveClock) {
	if old == nil {
		return
	}
	now, before := &r.Spec.Taint, &old.Spec.Taint
	if now.Effect != before.Effect && now.TimeAdded.Equal(before.TimeAdded) {
		now.TimeAdded = nowInSeconds(c)
	}
}

// validateTaintRule does not validate an unchanged effect again. old is nil for a new rule.
func validateTaintRule(c *check.Checker, r, old *taintRule) {
	validateTaintSelector(c, r.Spec.DeviceSelector, specPath.Child("deviceSelector"))
	taint := specPath.Child("taint")
	validateTaintName(c, &r.Spec.Taint, taint)
	if old == nil || old.Spec.Taint.Effect != r.Spec.Taint.Effect {
		validateTaintEffect(c, r.Spec.Taint.Effect, taint.Child("effect"))
	}
}

func validateTaintSelector(c *check.Checker, s *resourcev1.DeviceTaintSelector, path *field.Path) {
	if s == nil {
		return
	}
	if s.Driver != nil {
		c.DriverName(path.Child("driver"), *s.Driver)
	}
	if s.Pool != nil {
		validatePool(c, *s.Pool, path.Child("pool"))
	}
	if s.Device != nil {
		c.DNSLabel(path.Child("device"), *s.Device)
	}
}

func validateConditions(c *check.Checker, conditions []metav1.Condition, most int, path *field.Path) {
	c.Add(metav1validation.ValidateConditions(conditions, path)...)
	c.MaxItems(path, len(conditions), most)
}
