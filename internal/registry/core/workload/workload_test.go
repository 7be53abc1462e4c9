// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

var path = field.NewPath("p")

func TestValidateSelected(t *testing.T) {
	template := &v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	checktest.Diff(t, []string{"p.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"},
		check.Run(func(c *check.Checker) {
			ValidateSelected(c, template, labels.Everything(), path)
			ValidateSelected(c, template, labels.SelectorFromSet(labels.Set{"app": "web"}), path)
			ValidateSelected(c, template, labels.SelectorFromSet(labels.Set{"app": "db"}), path)
		}))
}

func TestValidateRestartsAlways(t *testing.T) {
	checktest.Diff(t, []string{
		`p.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
		`p.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported`,
	}, check.Run(func(c *check.Checker) {
		ValidateRestartsAlways(c, &v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways}, "ReplicaSet", path)
		ValidateRestartsAlways(c, &v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(1))}, "ReplicaSet", path)
	}))
}

func TestCounts(t *testing.T) {
	checktest.Diff(t, []string{
		`p.ready: Invalid value: 3: cannot be greater than status.replicas`,
		`p.updated: Invalid value: -1: must be greater than or equal to 0`,
		`p.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas`,
	}, check.Run(func(c *check.Checker) {
		ValidateCounts(c, path, 2, Count{"full", 2}, Count{"ready", 3}, Count{"updated", -1})
		ValidateAvailable(c, path, 2, 2)
		ValidateAvailable(c, path, 3, 2)
	}))
}
