// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	"context"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// PodGroup is a group of pods with a scheduling policy.
var PodGroup = generic.Kind[*schedulingv1beta1.PodGroup]{
	Name: "PodGroup", Plural: "podgroups",
	New:     func() *schedulingv1beta1.PodGroup { return &schedulingv1beta1.PodGroup{} },
	NewList: func() runtime.Object { return &schedulingv1beta1.PodGroupList{} },

	Spec:                   func(g *schedulingv1beta1.PodGroup) any { return &g.Spec },
	Status:                 func(g *schedulingv1beta1.PodGroup) any { return &g.Status },
	Generation:             generic.NoGeneration,
	RequireResourceVersion: true,

	Prepare:  preparePodGroup,
	Validate: validatePodGroup,
	// The declared validation knows which fields are immutable.
	ValidateUpdate: func(context.Context, *check.Checker, *schedulingv1beta1.PodGroup, *schedulingv1beta1.PodGroup) {},
	StatusUpdate: generic.Update[*schedulingv1beta1.PodGroup]{
		Prepare: func(_ context.Context, g, old *schedulingv1beta1.PodGroup) {
			metav1.ResetObjectMetaForStatus(&g.ObjectMeta, &old.ObjectMeta)
		},
		Validate: validatePodGroupStatus,
		Resets:   []string{"metadata"},
	},
	Columns: []generic.Column[*schedulingv1beta1.PodGroup]{
		{Name: "Policy", Description: schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"], Cell: policyCell},
		{Name: "Workload", Description: "Name of the referenced Workload object", Cell: workloadCell},
		{Name: "Status", Description: "Status of the PodGroup", Cell: statusCell},
	},
}

// preparePodGroup clears fields of features that are disabled in Kubernetes v1.37, unless the
// stored object has them.
func preparePodGroup(_ context.Context, g, old *schedulingv1beta1.PodGroup) {
	var before schedulingv1beta1.PodGroupSpec
	if old != nil {
		before = old.Spec
	}
	if before.SchedulingConstraints == nil {
		g.Spec.SchedulingConstraints = nil
	}
	if before.PreemptionPolicy == nil {
		g.Spec.PreemptionPolicy = nil
	}
	if before.ParentCompositePodGroupName == nil {
		g.Spec.ParentCompositePodGroupName = nil
	}
}

func validatePodGroup(_ context.Context, c *check.Checker, g *schedulingv1beta1.PodGroup) {
	if g.Spec.ParentCompositePodGroupName != nil && g.Spec.WorkloadRef == nil {
		c.Declared().Required(field.NewPath("spec", "workloadRef"), "must be set when parentCompositePodGroupName is set")
	}
}

func validatePodGroupStatus(_ context.Context, c *check.Checker, g, _ *schedulingv1beta1.PodGroup) {
	status := field.NewPath("status")
	c.Add(metav1validation.ValidateConditions(g.Status.Conditions, status.Child("conditions"))...)
	for i := range g.Status.ResourceClaimStatuses {
		name := g.Status.ResourceClaimStatuses[i].Name
		known := slices.ContainsFunc(g.Spec.ResourceClaims, func(claim schedulingv1beta1.PodGroupResourceClaim) bool { return claim.Name == name })
		if !known {
			c.Invalid(status.Child("resourceClaimStatuses").Index(i).Child("name"), name, "must match the name of an entry in `spec.resourceClaims`")
		}
	}
}

func policyCell(g *schedulingv1beta1.PodGroup) any {
	if g.Spec.SchedulingPolicy.Gang != nil {
		return "Gang"
	}
	return "Basic"
}

func workloadCell(g *schedulingv1beta1.PodGroup) any {
	if ref := g.Spec.WorkloadRef; ref != nil {
		return ref.WorkloadName
	}
	return "<none>"
}

func statusCell(g *schedulingv1beta1.PodGroup) any {
	if disrupted := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.DisruptionTarget); disrupted != nil {
		return disrupted.Reason
	}
	scheduled := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	switch {
	case scheduled == nil:
		return "Pending"
	case scheduled.Status == metav1.ConditionTrue:
		return "Scheduled"
	default:
		return "Unschedulable"
	}
}
