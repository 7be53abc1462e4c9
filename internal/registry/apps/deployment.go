// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/workload"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Deployment rolls out changes of its template with ReplicaSets.
var Deployment = generic.Kind[*appsv1.Deployment]{
	Name: "Deployment", Plural: "deployments", ShortNames: []string{"deploy"}, Categories: []string{"all"},
	New:      func() *appsv1.Deployment { return &appsv1.Deployment{} },
	NewList:  func() runtime.Object { return &appsv1.DeploymentList{} },
	Spec:     func(d *appsv1.Deployment) any { return &d.Spec },
	Status:   func(d *appsv1.Deployment) any { return &d.Status },
	Deletion: generic.Deletion[*appsv1.Deployment]{OrphanByDefault: OrphansByDefault},
	// Its annotations are copied to its ReplicaSets.
	Generation: generic.SpecAndAnnotations,
	Prepare:    dropAlphaFields(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template }),
	StatusUpdate: generic.Update[*appsv1.Deployment]{
		Prepare:  func(_ context.Context, d, old *appsv1.Deployment) { d.Labels = old.Labels },
		Resets:   []string{"metadata.labels"},
		Validate: validateDeploymentStatus,
	},
	Validate:       validateDeployment,
	ValidateUpdate: validateDeploymentUpdate,
	Warnings:       warnings(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template }),
	Scale: &generic.Scale[*appsv1.Deployment]{
		Replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
		Current:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
	},
	Columns: append([]generic.Column[*appsv1.Deployment]{
		{Name: "Ready", Description: "Number of the pod with ready state", Cell: func(d *appsv1.Deployment) any {
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
		}},
		{Name: "Up-to-date", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"], Cell: func(d *appsv1.Deployment) any { return d.Status.UpdatedReplicas }},
		{Name: "Available", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"], Cell: func(d *appsv1.Deployment) any { return d.Status.AvailableReplicas }},
	}, templateColumns(
		func(d *appsv1.Deployment) corev1.PodSpec { return d.Spec.Template.Spec },
		func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		appsv1.DeploymentSpec{}.SwaggerDoc()["selector"])...),
}

func validateDeployment(_ context.Context, c *check.Checker, d *appsv1.Deployment) {
	spec := field.NewPath("spec")
	validateReplicated(c, d.Spec.Replicas, d.Spec.Selector, &d.Spec.Template, spec)
	validateDeploymentStrategy(c, &d.Spec.Strategy, spec.Child("strategy"))
	c.NonNegative(spec.Child("minReadySeconds"), int64(d.Spec.MinReadySeconds))
	check.NonNegativePtr(c, spec.Child("revisionHistoryLimit"), d.Spec.RevisionHistoryLimit)
	validateProgressDeadline(c, d, spec.Child("progressDeadlineSeconds"))
}

func validateProgressDeadline(c *check.Checker, d *appsv1.Deployment, path *field.Path) {
	deadline := d.Spec.ProgressDeadlineSeconds
	check.NonNegativePtr(c, path, deadline)
	if deadline != nil && *deadline <= d.Spec.MinReadySeconds {
		c.Invalid(path, *deadline, "must be greater than minReadySeconds")
	}
}

func validateDeploymentStrategy(c *check.Checker, strategy *appsv1.DeploymentStrategy, path *field.Path) {
	rolling := path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if strategy.RollingUpdate != nil {
			c.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if strategy.RollingUpdate == nil {
			c.Required(rolling, "this should be defaulted and never be nil")
			return
		}
		validateRollingUpdate(c, strategy.RollingUpdate, rolling)
	default:
		c.Add(field.NotSupported(path, *strategy, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

func validateRollingUpdate(c *check.Checker, rolling *appsv1.RollingUpdateDeployment, path *field.Path) {
	unavailable := path.Child("maxUnavailable")
	countOrPercent(c, rolling.MaxUnavailable, unavailable)
	countOrPercent(c, rolling.MaxSurge, path.Child("maxSurge"))
	if isZero(rolling.MaxUnavailable) && isZero(rolling.MaxSurge) {
		c.Invalid(unavailable, rolling.MaxUnavailable, "may not be 0 when `maxSurge` is 0")
	}
	atMost100Percent(c, rolling.MaxUnavailable, unavailable)
}

func validateDeploymentUpdate(ctx context.Context, c *check.Checker, d, old *appsv1.Deployment) {
	validateDeployment(ctx, c, d)
	validateSelectorUpdate(ctx, c, d.Spec.Selector, old.Spec.Selector)
}

func validateDeploymentStatus(_ context.Context, c *check.Checker, d, old *appsv1.Deployment) {
	status, s := field.NewPath("status"), &d.Status
	c.NonNegative(status.Child("observedGeneration"), int64(s.ObservedGeneration))
	workload.ValidateCounts(c, status, s.Replicas,
		workload.Count{Name: "updatedReplicas", Value: s.UpdatedReplicas}, workload.Count{Name: "readyReplicas", Value: s.ReadyReplicas}, workload.Count{Name: "availableReplicas", Value: s.AvailableReplicas})
	c.NonNegative(status.Child("unavailableReplicas"), int64(s.UnavailableReplicas))
	check.NonNegativePtr(c, status.Child("terminatingReplicas"), s.TerminatingReplicas)
	workload.ValidateAvailable(c, status, s.AvailableReplicas, s.ReadyReplicas)
	validateCollisions(c, status, s.CollisionCount, old.Status.CollisionCount)
}
