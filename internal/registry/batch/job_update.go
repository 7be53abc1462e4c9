// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func validateJobUpdate(_ context.Context, c *check.Checker, j, old *batchv1.Job) {
	path := field.NewPath("spec")
	spec, before := &j.Spec, &old.Spec
	validateJobSpecWithSelector(c, spec, path)
	validateCompletionsUpdate(c, spec, before, path.Child("completions"))
	c.Immutable(path.Child("selector"), spec.Selector, before.Selector)
	validateTemplateUpdate(c, j, old, path.Child("template"))
	c.Immutable(path.Child("completionMode"), spec.CompletionMode, before.CompletionMode)
	c.Immutable(path.Child("podFailurePolicy"), spec.PodFailurePolicy, before.PodFailurePolicy)
	c.Immutable(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex, before.BackoffLimitPerIndex)
	c.Immutable(path.Child("managedBy"), spec.ManagedBy, before.ManagedBy)
	c.Immutable(path.Child("successPolicy"), spec.SuccessPolicy, before.SuccessPolicy)
	validateNameOfIndexedPods(c, j)
}

// validateCompletionsUpdate allows an indexed Job to be scaled, if all of its pods run in parallel
// (KEP-3715).
func validateCompletionsUpdate(c *check.Checker, spec, old *batchv1.JobSpec, path *field.Path) {
	if !isIndexed(spec) {
		c.Immutable(path, spec.Completions, old.Completions)
		return
	}
	if spec.Completions == nil || ptr.Equal(spec.Completions, old.Completions) {
		return
	}
	if !ptr.Equal(spec.Completions, spec.Parallelism) {
		c.Invalid(path, *spec.Completions, "can only be modified in tandem with spec.parallelism")
	}
}

// validateTemplateUpdate allows a queue to change the scheduling directives of a suspended Job's
// pods (KEP-2926), and their resources (KEP-5440).
func validateTemplateUpdate(c *check.Checker, j, old *batchv1.Job, path *field.Path) {
	template, before := &j.Spec.Template, old.Spec.Template.DeepCopy()
	if !mayChangeTemplate(old) {
		c.Immutable(path, template, before)
		return
	}
	spec := &before.Spec
	spec.Affinity = withNodeAffinityOf(template.Spec.Affinity, spec.Affinity)
	spec.NodeSelector = template.Spec.NodeSelector
	spec.Tolerations = template.Spec.Tolerations
	spec.SchedulingGates = template.Spec.SchedulingGates
	takeResources(spec.Containers, template.Spec.Containers)
	takeResources(spec.InitContainers, template.Spec.InitContainers)
	c.Immutable(path.Child("spec"), template.Spec, *spec)
}

// mayChangeTemplate reports whether a Job is suspended and has no pods: either it has never
// started, or its controller has reported that it stopped.
func mayChangeTemplate(j *batchv1.Job) bool {
	stopped := j.Status.StartTime == nil || hasTrue(j, batchv1.JobSuspended)
	return ptr.Deref(j.Spec.Suspend, false) && stopped && j.Status.Active == 0
}

// withNodeAffinityOf returns old with the node affinity of wanted.
func withNodeAffinityOf(wanted, old *corev1.Affinity) *corev1.Affinity {
	out := ptr.Deref(old, corev1.Affinity{})
	out.NodeAffinity = nil
	if wanted != nil {
		out.NodeAffinity = wanted.NodeAffinity
	}
	if wanted == nil && out == (corev1.Affinity{}) {
		return nil
	}
	return &out
}

// takeResources copies the resources of the wanted containers to those of the same name.
func takeResources(containers, wanted []corev1.Container) {
	if len(containers) != len(wanted) {
		return
	}
	for i := range containers {
		if containers[i].Name == wanted[i].Name {
			containers[i].Resources = wanted[i].Resources
		}
	}
}
