// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is flowcontrol.apiserver.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     flowcontrolv1.GroupName,
		Priority: 16100,
		Scheme:   []func(*runtime.Scheme) error{flowcontrolv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{FlowSchema, PriorityLevelConfiguration}}},
	}
}

// validateConditions requires each condition to have a unique type.
func validateConditions[C any](c *check.Checker, conditions []C, typeOf func(C) string) {
	seen := sets.New[string]()
	for i, condition := range conditions {
		path, name := field.NewPath("status", "conditions").Index(i).Child("type"), typeOf(condition)
		check.Unique(c, path, seen, name)
		if name == "" {
			c.Required(path, "")
		}
	}
}
