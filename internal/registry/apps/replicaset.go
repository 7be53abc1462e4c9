// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"

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

// ReplicaSet runs a number of identical pods.
var ReplicaSet = generic.Kind[*appsv1.ReplicaSet]{
	Name: "ReplicaSet", Plural: "replicasets", ShortNames: []string{"rs"}, Categories: []string{"all"},
	New:            func() *appsv1.ReplicaSet { return &appsv1.ReplicaSet{} },
	NewList:        func() runtime.Object { return &appsv1.ReplicaSetList{} },
	Spec:           func(r *appsv1.ReplicaSet) any { return &r.Spec },
	Status:         func(r *appsv1.ReplicaSet) any { return &r.Status },
	Deletion:       generic.Deletion[*appsv1.ReplicaSet]{OrphanByDefault: OrphansByDefault},
	Prepare:        dropAlphaFields(func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template }),
	Validate:       validateReplicaSet,
	ValidateUpdate: validateReplicaSetUpdate,
	StatusUpdate:   generic.Update[*appsv1.ReplicaSet]{Validate: validateReplicaSetStatus},
	Warnings:       warnings(func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template }),
	Scale: &generic.Scale[*appsv1.ReplicaSet]{
		Replicas: func(r *appsv1.ReplicaSet) **int32 { return &r.Spec.Replicas },
		Current:  func(r *appsv1.ReplicaSet) int32 { return r.Status.Replicas },
		Selector: func(r *appsv1.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector },
	},
	Columns: append([]generic.Column[*appsv1.ReplicaSet]{
		{Name: "Desired", Type: "integer", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"], Cell: func(r *appsv1.ReplicaSet) any { return ptr.Deref(r.Spec.Replicas, 1) }},
		{Name: "Current", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"], Cell: func(r *appsv1.ReplicaSet) any { return r.Status.Replicas }},
		{Name: "Ready", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"], Cell: func(r *appsv1.ReplicaSet) any { return r.Status.ReadyReplicas }},
	}, templateColumns(
		func(r *appsv1.ReplicaSet) corev1.PodSpec { return r.Spec.Template.Spec },
		func(r *appsv1.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector },
		appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"])...),
}

func validateReplicaSet(_ context.Context, c *check.Checker, r *appsv1.ReplicaSet) {
	spec := field.NewPath("spec")
	validateReplicated(c, r.Spec.Replicas, r.Spec.Selector, &r.Spec.Template, spec)
	c.NonNegative(spec.Child("minReadySeconds"), int64(r.Spec.MinReadySeconds))
}

func validateReplicaSetUpdate(ctx context.Context, c *check.Checker, r, old *appsv1.ReplicaSet) {
	validateReplicaSet(ctx, c, r)
	validateSelectorUpdate(ctx, c, r.Spec.Selector, old.Spec.Selector)
}

func validateReplicaSetStatus(_ context.Context, c *check.Checker, r, _ *appsv1.ReplicaSet) {
	status, s := field.NewPath("status"), &r.Status
	workload.ValidateCounts(c, status, s.Replicas,
		workload.Count{Name: "fullyLabeledReplicas", Value: s.FullyLabeledReplicas}, workload.Count{Name: "readyReplicas", Value: s.ReadyReplicas}, workload.Count{Name: "availableReplicas", Value: s.AvailableReplicas})
	c.NonNegative(status.Child("observedGeneration"), int64(s.ObservedGeneration))
	check.NonNegativePtr(c, status.Child("terminatingReplicas"), s.TerminatingReplicas)
	workload.ValidateAvailable(c, status, s.AvailableReplicas, s.ReadyReplicas)
}
