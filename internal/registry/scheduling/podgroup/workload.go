// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	"context"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Workload holds the templates of the PodGroups of an application.
var Workload = generic.Kind[*schedulingv1beta1.Workload]{
	Name: "Workload", Plural: "workloads",
	New:     func() *schedulingv1beta1.Workload { return &schedulingv1beta1.Workload{} },
	NewList: func() runtime.Object { return &schedulingv1beta1.WorkloadList{} },

	Spec:                   func(w *schedulingv1beta1.Workload) any { return &w.Spec },
	Generation:             generic.NoGeneration,
	RequireResourceVersion: true,

	Prepare:  prepareWorkload,
	Validate: validateWorkload,
}

// prepareWorkload clears fields of features that are disabled in Kubernetes v1.37, unless the
// stored object has them. Templates keep their order, so the former one is at the same index.
func prepareWorkload(ctx context.Context, w, old *schedulingv1beta1.Workload) {
	var before schedulingv1beta1.WorkloadSpec
	if old != nil {
		before = old.Spec
	}
	if len(before.CompositePodGroupTemplates) == 0 {
		w.Spec.CompositePodGroupTemplates = nil
	}
	for i := range w.Spec.PodGroupTemplates {
		var template schedulingv1beta1.PodGroupTemplate
		if i < len(before.PodGroupTemplates) {
			template = before.PodGroupTemplates[i]
		}
		prepareTemplate(ctx, &w.Spec.PodGroupTemplates[i], &template)
	}
}

func prepareTemplate(ctx context.Context, t, old *schedulingv1beta1.PodGroupTemplate) {
	if old.SchedulingConstraints == nil {
		t.SchedulingConstraints = nil
	}
	// Workloads can be served without PodGroups, which have the claims.
	if len(old.ResourceClaims) == 0 && !generic.Gangs(ctx) {
		t.ResourceClaims = nil
	}
	if old.PreemptionPolicy == nil {
		t.PreemptionPolicy = nil
	}
}

// validateWorkload requires that all templates have the same priority. The other rules are declared.
func validateWorkload(_ context.Context, c *check.Checker, w *schedulingv1beta1.Workload) {
	templates := w.Spec.PodGroupTemplates
	for i := range templates {
		if templates[i].PriorityClassName != templates[0].PriorityClassName || !ptr.Equal(templates[i].Priority, templates[0].Priority) {
			c.Invalid(field.NewPath("spec"), nil, "detected multiple priority configurations")
			return
		}
	}
}
