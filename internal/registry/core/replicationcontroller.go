// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/core/workload"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ReplicationController runs a number of identical pods. It is the predecessor of ReplicaSet.
var ReplicationController = generic.Kind[*corev1.ReplicationController]{
	Name: "ReplicationController", Plural: "replicationcontrollers", ShortNames: []string{"rc"}, Categories: []string{"all"},
	New:     func() *corev1.ReplicationController { return &corev1.ReplicationController{} },
	NewList: func() runtime.Object { return &corev1.ReplicationControllerList{} },
	// k8s.io/api declares the validation of the name.
	Metadata:       generic.Metadata{ValidName: func(string, bool) []string { return nil }},
	Spec:           func(r *corev1.ReplicationController) any { return &r.Spec },
	Status:         func(r *corev1.ReplicationController) any { return &r.Status },
	Prepare:        prepareReplicationController,
	Validate:       validateReplicationController,
	ValidateUpdate: validateReplicationControllerUpdate,
	StatusUpdate:   generic.Update[*corev1.ReplicationController]{Validate: validateReplicationControllerStatus},
	Warnings:       warnReplicationController,
	Deletion:       generic.Deletion[*corev1.ReplicationController]{OrphanByDefault: func(schema.GroupVersion) bool { return true }},
	Fields: map[string]func(*corev1.ReplicationController) string{
		"status.replicas": func(r *corev1.ReplicationController) string { return strconv.Itoa(int(r.Status.Replicas)) },
	},
	Scale: &generic.Scale[*corev1.ReplicationController]{
		Replicas: func(r *corev1.ReplicationController) **int32 { return &r.Spec.Replicas },
		Current:  func(r *corev1.ReplicationController) int32 { return r.Status.Replicas },
		Selector: func(r *corev1.ReplicationController) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: r.Spec.Selector}
		},
	},
	Columns: []generic.Column[*corev1.ReplicationController]{
		{Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"], Cell: func(r *corev1.ReplicationController) any { return ptr.Deref(r.Spec.Replicas, 0) }},
		{Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"], Cell: func(r *corev1.ReplicationController) any { return r.Status.Replicas }},
		{Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"], Cell: func(r *corev1.ReplicationController) any { return r.Status.ReadyReplicas }},
		{Name: "Containers", Wide: true, Description: "Names of each container in the template.", Cell: func(r *corev1.ReplicationController) any { return ContainerNames(replicated(r)) }},
		{Name: "Images", Wide: true, Description: "Images referenced by each container in the template.", Cell: func(r *corev1.ReplicationController) any { return ContainerImages(replicated(r)) }},
		{Name: "Selector", Wide: true, Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"], Cell: func(r *corev1.ReplicationController) any { return labels.FormatLabels(r.Spec.Selector) }},
	},
}

// replicated returns the spec of the pods; empty without a template.
func replicated(r *corev1.ReplicationController) corev1.PodSpec {
	if r.Spec.Template == nil {
		return corev1.PodSpec{}
	}
	return r.Spec.Template.Spec
}

func prepareReplicationController(ctx context.Context, r, old *corev1.ReplicationController) {
	podspec.DropAlphaTemplateFields(ctx, r, old, func(r *corev1.ReplicationController) *corev1.PodTemplateSpec { return r.Spec.Template })
}

func validateReplicationController(_ context.Context, c *check.Checker, r *corev1.ReplicationController) {
	spec := field.NewPath("spec")
	c.Declared().NonNegative(spec.Child("minReadySeconds"), int64(r.Spec.MinReadySeconds))
	if r.Spec.Replicas == nil {
		c.Declared().Required(spec.Child("replicas"), "")
	} else {
		c.Declared().NonNegative(spec.Child("replicas"), int64(*r.Spec.Replicas))
	}
	if len(r.Spec.Selector) == 0 {
		c.Required(spec.Child("selector"), "")
	}
	path := spec.Child("template")
	if r.Spec.Template == nil {
		c.Required(path, "")
		return
	}
	workload.ValidateSelected(c, r.Spec.Template, labels.SelectorFromSet(r.Spec.Selector), path)
	podspec.ValidatePodTemplateSpec(c, r.Spec.Template, path)
	workload.ValidateRestartsAlways(c, &r.Spec.Template.Spec, "ReplicationController", path.Child("spec"))
}

func validateReplicationControllerUpdate(ctx context.Context, c *check.Checker, r, old *corev1.ReplicationController) {
	validateReplicationController(ctx, c, r)
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		validateNonConvertible(c, key, r, old)
	}
}

// validateNonConvertible forbids changes of the selector while an annotation says that other API
// versions cannot express it.
func validateNonConvertible(c *check.Checker, key string, r, old *corev1.ReplicationController) {
	parts := strings.Split(key, "/")
	if !strings.HasPrefix(key, corev1.NonConvertibleAnnotationPrefix) || len(parts) != 2 {
		return
	}
	if !strings.Contains(parts[1], "selector") {
		c.Add(&field.Error{Type: field.ErrorTypeNotFound, BadValue: old.Annotations[key], Field: parts[1], Detail: "unknown non-convertible field"})
		return
	}
	if !equality.Semantic.DeepEqual(r.Spec.Selector, old.Spec.Selector) {
		c.Invalid(field.NewPath("spec", "selector"), r.Spec.Selector, "cannot update non-convertible selector")
	}
}

func validateReplicationControllerStatus(_ context.Context, c *check.Checker, r, _ *corev1.ReplicationController) {
	status, s := field.NewPath("status"), &r.Status
	workload.ValidateCounts(c, status, s.Replicas, workload.Count{Name: "fullyLabeledReplicas", Value: s.FullyLabeledReplicas},
		workload.Count{Name: "readyReplicas", Value: s.ReadyReplicas}, workload.Count{Name: "availableReplicas", Value: s.AvailableReplicas})
	c.NonNegative(status.Child("observedGeneration"), s.ObservedGeneration)
	workload.ValidateAvailable(c, status, s.AvailableReplicas, s.ReadyReplicas)
}

// warnReplicationController warns about the old template on updates, as kube-apiserver does.
func warnReplicationController(_ context.Context, r, old *corev1.ReplicationController) []string {
	template := r.Spec.Template
	var out []string
	if old == nil {
		if problems := utilvalidation.IsDNS1123Label(r.Name); len(problems) > 0 {
			out = append(out, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", problems))
		}
	} else {
		if r.Generation == old.Generation {
			return nil
		}
		template = old.Spec.Template
	}
	if template == nil {
		return out
	}
	return append(out, podspec.TemplateWarnings(template, field.NewPath("spec", "template"))...)
}
