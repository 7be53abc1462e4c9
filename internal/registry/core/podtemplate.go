// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// PodTemplate stores a template for tools.
var PodTemplate = generic.Kind[*corev1.PodTemplate]{
	Name: "PodTemplate", Plural: "podtemplates",
	New:      func() *corev1.PodTemplate { return &corev1.PodTemplate{} },
	NewList:  func() runtime.Object { return &corev1.PodTemplateList{} },
	Deletion: generic.Deletion[*corev1.PodTemplate]{ReturnObject: true},
	Spec:     func(t *corev1.PodTemplate) any { return &t.Template },
	Validate: func(_ context.Context, c *check.Checker, t *corev1.PodTemplate) {
		podspec.ValidatePodTemplate(c, t)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, t, old *corev1.PodTemplate) {
		podspec.ValidatePodTemplateUpdate(c, t, old)
	},
	Warnings: func(_ context.Context, t, old *corev1.PodTemplate) []string {
		if old != nil && t.Generation == old.Generation {
			return nil
		}
		return podspec.TemplateWarnings(&t.Template, field.NewPath("template"))
	},
	Prepare: func(ctx context.Context, t, old *corev1.PodTemplate) {
		podspec.DropAlphaTemplateFields(ctx, t, old, func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template })
	},
	Table: generic.Table[*corev1.PodTemplate]{ColumnsOnly: true},
	Columns: []generic.Column[*corev1.PodTemplate]{
		generic.NameColumn[*corev1.PodTemplate](),
		{Name: "Containers", Description: "Names of each container in the template.", Cell: func(t *corev1.PodTemplate) any { return ContainerNames(t.Template.Spec) }},
		{Name: "Images", Description: "Images referenced by each container in the template.", Cell: func(t *corev1.PodTemplate) any { return ContainerImages(t.Template.Spec) }},
		{Name: "Pod Labels", Description: "The labels for the pod template.", Cell: func(t *corev1.PodTemplate) any { return labels.FormatLabels(t.Template.Labels) }},
	},
}

// ContainerNames and ContainerImages are cells that all workloads show.
func ContainerNames(spec corev1.PodSpec) string {
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return strings.Join(names, ",")
}

// ContainerImages lists the images of the template's containers.
func ContainerImages(spec corev1.PodSpec) string {
	var images []string
	for i := range spec.Containers {
		images = append(images, spec.Containers[i].Image)
	}
	return strings.Join(images, ",")
}
