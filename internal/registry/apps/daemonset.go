// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/core/workload"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// DaemonSet runs a pod on each node.
var DaemonSet = generic.Kind[*appsv1.DaemonSet]{
	Name: "DaemonSet", Plural: "daemonsets", ShortNames: []string{"ds"}, Categories: []string{"all"},
	New:      func() *appsv1.DaemonSet { return &appsv1.DaemonSet{} },
	NewList:  func() runtime.Object { return &appsv1.DaemonSetList{} },
	Spec:     func(d *appsv1.DaemonSet) any { return &d.Spec },
	Status:   func(d *appsv1.DaemonSet) any { return &d.Status },
	Deletion: generic.Deletion[*appsv1.DaemonSet]{OrphanByDefault: OrphansByDefault},
	Prepare:  prepareDaemonSet,
	StatusUpdate: generic.Update[*appsv1.DaemonSet]{
		Prepare:  func(_ context.Context, d, old *appsv1.DaemonSet) { setTemplateGeneration(d, old) },
		Validate: validateDaemonSetStatus,
	},
	Validate:       validateDaemonSet,
	ValidateUpdate: validateDaemonSetUpdate,
	Warnings:       warnDaemonSet,
	Hooks: generic.Hooks[*appsv1.DaemonSet]{
		BeginCreate: func(ctx context.Context, d *appsv1.DaemonSet, _ bool) (generic.Finish, error) {
			return nil, checkTemplateGeneration(ctx, d)
		},
		BeginUpdate: func(ctx context.Context, d, _ *appsv1.DaemonSet, _ bool) (generic.Finish, error) {
			return nil, checkTemplateGeneration(ctx, d)
		},
	},
	Columns: append([]generic.Column[*appsv1.DaemonSet]{
		{Name: "Desired", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["desiredNumberScheduled"], Cell: func(d *appsv1.DaemonSet) any { return d.Status.DesiredNumberScheduled }},
		{Name: "Current", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["currentNumberScheduled"], Cell: func(d *appsv1.DaemonSet) any { return d.Status.CurrentNumberScheduled }},
		{Name: "Ready", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberReady"], Cell: func(d *appsv1.DaemonSet) any { return d.Status.NumberReady }},
		{Name: "Up-to-date", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["updatedNumberScheduled"], Cell: func(d *appsv1.DaemonSet) any { return d.Status.UpdatedNumberScheduled }},
		{Name: "Available", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberAvailable"], Cell: func(d *appsv1.DaemonSet) any { return d.Status.NumberAvailable }},
		{Name: "Node Selector", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], Cell: func(d *appsv1.DaemonSet) any { return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector) }},
	}, templateColumns(
		func(d *appsv1.DaemonSet) corev1.PodSpec { return d.Spec.Template.Spec },
		func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector },
		appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])...),
}

// prepareDaemonSet counts changes of the template in an annotation, because apps/v1 no longer has a
// field for it. Clients cannot decrease the count.
func prepareDaemonSet(ctx context.Context, d, old *appsv1.DaemonSet) {
	podspec.DropAlphaTemplateFields(ctx, d, old, func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template })
	setTemplateGeneration(d, old)
}

func setTemplateGeneration(d, old *appsv1.DaemonSet) {
	generation, _ := templateGeneration(d)
	generation = max(generation, 1)
	if old != nil {
		generation, _ = templateGeneration(old)
		if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			generation++
		}
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(generation, 10))
}

func templateGeneration(d *appsv1.DaemonSet) (int64, error) {
	value, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(value, 10, 64)
}

// checkTemplateGeneration refuses an annotation that is not a number with a decoding error: upstream
// decodes it into a field of its internal type.
func checkTemplateGeneration(ctx context.Context, d *appsv1.DaemonSet) error {
	_, err := templateGeneration(d)
	if err == nil {
		return nil
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "patch" {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), d, err.Error())})
	}
	return apierrors.NewBadRequest(fmt.Sprintf("DaemonSet in version %q cannot be handled as a DaemonSet: %v", generic.RequestVersion(ctx).Version, err))
}

func validateDaemonSet(_ context.Context, c *check.Checker, d *appsv1.DaemonSet) {
	validateDaemonSetSpec(c, &d.Spec, metav1validation.LabelSelectorValidationOptions{})
}

func validateDaemonSetSpec(c *check.Checker, spec *appsv1.DaemonSetSpec, options metav1validation.LabelSelectorValidationOptions) {
	path := field.NewPath("spec")
	template, at := &spec.Template, path.Child("selector")
	c.Add(metav1validation.ValidateLabelSelector(spec.Selector, options, at)...)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(template.Labels)) {
		c.Invalid(path.Child("template", "metadata", "labels"), template.Labels, workload.Unselected)
	}
	if isEmpty(spec.Selector) {
		c.Invalid(at, spec.Selector, "empty selector is invalid for daemonset")
	}
	podspec.ValidatePodTemplateSpec(c, template, path.Child("template"))
	workload.ValidateRestartsAlways(c, &template.Spec, "DaemonSet", path.Child("template", "spec"))
	c.NonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	validateDaemonSetStrategy(c, &spec.UpdateStrategy, path.Child("updateStrategy"))
	check.NonNegativePtr(c, path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)
}

func validateDaemonSetStrategy(c *check.Checker, strategy *appsv1.DaemonSetUpdateStrategy, path *field.Path) {
	switch strategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		rolling := path.Child("rollingUpdate")
		if strategy.RollingUpdate == nil {
			c.Required(rolling, "")
			return
		}
		validateDaemonSetRolling(c, strategy.RollingUpdate, rolling)
	default:
		c.Add(field.NotSupported(path, *strategy, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

// validateDaemonSetRolling requires either maxUnavailable or maxSurge: a node's old pod is deleted
// before the new one is created, or after it is available.
func validateDaemonSetRolling(c *check.Checker, rolling *appsv1.RollingUpdateDaemonSet, path *field.Path) {
	unavailable, surge := path.Child("maxUnavailable"), path.Child("maxSurge")
	countOrPercent(c, rolling.MaxUnavailable, unavailable)
	countOrPercent(c, rolling.MaxSurge, surge)
	atMost100Percent(c, rolling.MaxUnavailable, unavailable)
	atMost100Percent(c, rolling.MaxSurge, surge)
	switch before, after := !isZero(rolling.MaxUnavailable), !isZero(rolling.MaxSurge); {
	case before && after:
		c.Invalid(surge, *rolling.MaxSurge, "may not be set when maxUnavailable is non-zero")
	case !before && !after:
		c.Required(unavailable, "cannot be 0 when maxSurge is 0")
	}
}

func validateDaemonSetUpdate(ctx context.Context, c *check.Checker, d, old *appsv1.DaemonSet) {
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)}
	validateDaemonSetSpec(c, &d.Spec, options)
	validateSelectorUpdate(ctx, c, d.Spec.Selector, old.Spec.Selector)
}

func validateDaemonSetStatus(_ context.Context, c *check.Checker, d, old *appsv1.DaemonSet) {
	status, s := field.NewPath("status"), &d.Status
	c.NonNegative(status.Child("observedGeneration"), int64(s.ObservedGeneration))
	for _, count := range []workload.Count{
		{Name: "currentNumberScheduled", Value: s.CurrentNumberScheduled},
		{Name: "numberMisscheduled", Value: s.NumberMisscheduled},
		{Name: "desiredNumberScheduled", Value: s.DesiredNumberScheduled},
		{Name: "numberReady", Value: s.NumberReady},
		{Name: "updatedNumberScheduled", Value: s.UpdatedNumberScheduled},
		{Name: "numberAvailable", Value: s.NumberAvailable},
		{Name: "numberUnavailable", Value: s.NumberUnavailable},
	} {
		c.NonNegative(status.Child(count.Name), int64(count.Value))
	}
	validateCollisions(c, status, s.CollisionCount, old.Status.CollisionCount)
}

func warnDaemonSet(_ context.Context, d, old *appsv1.DaemonSet) []string {
	if old != nil && equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		return nil
	}
	return podspec.TemplateWarnings(&d.Spec.Template, field.NewPath("spec", "template"))
}
