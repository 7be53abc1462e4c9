// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// Limits that keep the lists of indexes in a status short enough to be stored.
const (
	maxIndexedParallelism  = 100_000
	maxFailedIndexes       = 100_000
	manyCompletions        = 100_000
	maxParallelismOfMany   = 10_000
	maxFailedIndexesOfMany = 10_000
	maxManagedByLength     = 63
)

func isIndexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func validateJob(_ context.Context, c *check.Checker, j *batchv1.Job) {
	validateGeneratedSelector(c, j)
	validateJobSpecWithSelector(c, &j.Spec, field.NewPath("spec"))
	validateNameOfIndexedPods(c, j)
}

// validateGeneratedSelector requires the labels and the selector that generateSelector creates, and
// no others from the client.
func validateGeneratedSelector(c *check.Checker, j *batchv1.Job) {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return
	}
	if j.UID == "" {
		c.Required(field.NewPath("metadata", "uid"), "")
	}
	generated := labels.Set{}
	path := field.NewPath("spec", "template", "metadata", "labels")
	for i := range uidLabels { // the old names first, then those with the prefix
		requireLabel(c, path, j.Spec.Template.Labels, uidLabels[i], string(j.UID))
		requireLabel(c, path, j.Spec.Template.Labels, nameLabels[i], j.Name)
		generated[uidLabels[i]], generated[nameLabels[i]] = string(j.UID), j.Name
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(generated) {
		c.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated")
	}
}

func requireLabel(c *check.Checker, path *field.Path, labels map[string]string, key, want string) {
	value, found := labels[key]
	switch message := fmt.Sprintf("must be '%s'", want); {
	case !found:
		c.Required(path.Key(key), message)
	case value != want:
		c.Invalid(path.Key(key), labels, message)
	}
}

// validateNameOfIndexedPods requires that the Job's name and its highest index form a DNS label,
// because they are the hostname of a pod.
func validateNameOfIndexedPods(c *check.Checker, j *batchv1.Job) {
	if !isIndexed(&j.Spec) || ptr.Deref(j.Spec.Completions, 0) <= 0 {
		return
	}
	hostname := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
	if len(validation.IsDNS1123Label(hostname)) > 0 {
		c.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+hostname)
	}
}

func validateJobSpecWithSelector(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	validateJobSpec(c, spec, path)
	if spec.Selector == nil {
		c.Required(path.Child("selector"), "")
	} else {
		c.LabelSelector(path.Child("selector"), spec.Selector)
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		c.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`")
	}
}

// validateJobSpec checks the rules for Jobs and for templates of Jobs, which have no selector yet.
func validateJobSpec(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	check.NonNegativePtr(c, path.Child("parallelism"), spec.Parallelism)
	check.NonNegativePtr(c, path.Child("completions"), spec.Completions)
	check.NonNegativePtr(c, path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds)
	check.NonNegativePtr(c, path.Child("backoffLimit"), spec.BackoffLimit)
	check.NonNegativePtr(c, path.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished)
	check.NonNegativePtr(c, path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex)
	check.NonNegativePtr(c, path.Child("maxFailedIndexes"), spec.MaxFailedIndexes)
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		c.Declared().Add(field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified").WithOrigin("dependentRequired"))
	}
	validateManagedBy(c, spec.ManagedBy, path.Child("managedBy"))
	validateCompletionMode(c, spec, path)
	validateFailurePolicy(c, spec, path.Child("podFailurePolicy"))
	validateSuccessPolicy(c, spec, path.Child("successPolicy"))
	validateReplacementPolicy(c, spec, path.Child("podReplacementPolicy"))
	podspec.ValidatePodTemplateSpec(c, &spec.Template, path.Child("template"))
	validateRestartPolicy(c, spec, path.Child("template", "spec", "restartPolicy"))
}

func validateManagedBy(c *check.Checker, name *string, path *field.Path) {
	if name == nil {
		return
	}
	c.Add(validation.IsDomainPrefixedPath(path, *name)...)
	c.MaxBytes(path, *name, maxManagedByLength)
}

func validateCompletionMode(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	switch mode := ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion); mode {
	case batchv1.IndexedCompletion:
		validateIndexedLimits(c, spec, path)
	case batchv1.NonIndexedCompletion:
		forbidUnlessIndexed(c, path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex)
		forbidUnlessIndexed(c, path.Child("maxFailedIndexes"), spec.MaxFailedIndexes)
	default:
		check.OneOf(c, path.Child("completionMode"), mode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	}
}

func forbidUnlessIndexed(c *check.Checker, path *field.Path, n *int32) {
	if n != nil {
		c.Invalid(path, *n, "requires indexed completion mode")
	}
}

func validateIndexedLimits(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	failed := path.Child("maxFailedIndexes")
	requireAtMost(c, path.Child("parallelism"), spec.Parallelism, maxIndexedParallelism,
		fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexedParallelism, batchv1.IndexedCompletion))
	requireAtMost(c, failed, spec.MaxFailedIndexes, maxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes))
	if spec.Completions == nil {
		c.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion))
		return
	}
	requireAtMost(c, failed, spec.MaxFailedIndexes, *spec.Completions, "must be less than or equal to completions")
	if *spec.Completions <= manyCompletions || spec.BackoffLimitPerIndex == nil {
		return
	}
	const whenMany = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	if spec.MaxFailedIndexes == nil {
		c.Required(failed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	requireAtMost(c, path.Child("parallelism"), spec.Parallelism, maxParallelismOfMany, fmt.Sprintf(whenMany, maxParallelismOfMany, manyCompletions))
	requireAtMost(c, failed, spec.MaxFailedIndexes, maxFailedIndexesOfMany, fmt.Sprintf(whenMany, maxFailedIndexesOfMany, manyCompletions))
}

func requireAtMost(c *check.Checker, path *field.Path, n *int32, limit int32, message string) {
	if n != nil && *n > limit {
		c.Invalid(path, *n, message)
	}
}

// validateReplacementPolicy permits only Failed with a failure policy: the policy cannot judge a
// pod before it has failed.
func validateReplacementPolicy(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	if spec.PodReplacementPolicy == nil {
		return
	}
	supported := []batchv1.PodReplacementPolicy{batchv1.Failed}
	if spec.PodFailurePolicy == nil {
		supported = append(supported, batchv1.TerminatingOrFailed)
	}
	check.OneOf(c, path, *spec.PodReplacementPolicy, supported...)
}

// validateRestartPolicy refuses Always, even as the default of a template without a policy: the
// pods of a Job must end.
func validateRestartPolicy(c *check.Checker, spec *batchv1.JobSpec, path *field.Path) {
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		c.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			c.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))
		}
	case corev1.RestartPolicyNever:
	default:
		check.OneOf(c, path, policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}
