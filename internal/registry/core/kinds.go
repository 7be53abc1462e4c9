// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are what some kinds of the group need besides storage.
type Dependencies struct {
}

// Group is the legacy group "".
func Group(d Dependencies) generic.Group {
	return generic.Group{
		Name:     corev1.GroupName,
		Priority: 18000,
		Scheme:   []func(*runtime.Scheme) error{corev1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			Namespace,
			ConfigMap,
			Secret,
		}}},
	}
}
