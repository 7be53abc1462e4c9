// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload holds the rules that the workloads of several groups share: of their templates,
// and of the counts in their status.
package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Unselected is the error of a template whose labels the workload's selector does not match.
const Unselected = "`selector` does not match template `labels`"

// ValidateSelected requires a template that the selector matches.
func ValidateSelected(c *check.Checker, template *v1.PodTemplateSpec, selector labels.Selector, path *field.Path) {
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		c.Invalid(path.Child("metadata", "labels"), template.Labels, Unselected)
	}
}

// ValidateRestartsAlways requires pods that run until they are deleted; path is that of their spec.
func ValidateRestartsAlways(c *check.Checker, spec *v1.PodSpec, kind string, path *field.Path) {
	check.OneOf(c, path.Child("restartPolicy"), spec.RestartPolicy, v1.RestartPolicyAlways)
	if spec.ActiveDeadlineSeconds != nil {
		c.Forbidden(path.Child("activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))
	}
}

// Count is a number of pods in a status.
type Count struct {
	Name  string
	Value int32
}

// ValidateCounts requires that no count is negative or exceeds the replicas.
func ValidateCounts(c *check.Checker, status *field.Path, replicas int32, counts ...Count) {
	c.NonNegative(status.Child("replicas"), int64(replicas))
	for _, count := range counts {
		c.NonNegative(status.Child(count.Name), int64(count.Value))
		if count.Value > replicas {
			c.Invalid(status.Child(count.Name), count.Value, "cannot be greater than status.replicas")
		}
	}
}

// ValidateAvailable requires that available pods are also ready.
func ValidateAvailable(c *check.Checker, status *field.Path, available, ready int32) {
	if available > ready {
		c.Invalid(status.Child("availableReplicas"), available, "cannot be greater than readyReplicas")
	}
}
