// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
)

// Clocked is a kind that needs a clock, for its validation or for the times that it sets.
type Clocked[T Object] func(clock.PassiveClock) Kind[T]

// Storage implements Resource.
func (k Clocked[T]) Storage(env Environment, gv schema.GroupVersion) (map[string]rest.Storage, error) {
	return k(env.Clock).Storage(env, gv)
}

// Register implements Resource.
func (k Clocked[T]) Register(scheme *runtime.Scheme, gv schema.GroupVersion) error {
	return k(nil).Register(scheme, gv)
}
