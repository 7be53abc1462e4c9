// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// The rules of templates, and of the counts in a status, that the workloads of
// several groups share.

// Unselected is what is wrong with the labels of a template whose pods the
// workload would not find again.
const Unselected = "`selector` does not match template `labels`"

// ValidateSelected wants a template that the selector matches.
func ValidateSelected(c *check.Checker, template *v1.PodTemplateSpec, selector labels.Selector, path *field.Path) {
	if selector.Empty() || selector.Matches(labels.Set(template.Labels)) {
		return
	}
	c.Invalid(path.Child("metadata", "labels"), template.Labels, Unselected)
}

// ValidateRunsForEver wants pods that do not end by themselves; path is that of
// their spec.
func ValidateRunsForEver(c *check.Checker, spec *v1.PodSpec, kind string, path *field.Path) {
	check.OneOf(c, path.Child("restartPolicy"), spec.RestartPolicy, v1.RestartPolicyAlways)
	if spec.ActiveDeadlineSeconds != nil {
		c.Forbidden(path.Child("activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))
	}
}

// Count is a number in a status that must not exceed another.
type Count struct {
	Name  string
	Value int32
}

// ValidateCounts wants all numbers non-negative and none beyond the replicas.
func ValidateCounts(c *check.Checker, status *field.Path, replicas int32, counts ...Count) {
	c.NonNegative(status.Child("replicas"), int64(replicas))
	for _, count := range counts {
		c.NonNegative(status.Child(count.Name), int64(count.Value))
		if count.Value > replicas {
			c.Invalid(status.Child(count.Name), count.Value, "cannot be greater than status.replicas")
		}
	}
}

// ValidateAvailable: a pod is ready before it is available.
func ValidateAvailable(c *check.Checker, status *field.Path, available, ready int32) {
	if available > ready {
		c.Invalid(status.Child("availableReplicas"), available, "cannot be greater than readyReplicas")
	}
}
