// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// clocked is a kind that notes when something happened.
type clocked[T generic.Object] func(clock.PassiveClock) generic.Kind[T]

// Storage implements generic.Resource.
func (k clocked[T]) Storage(env generic.Environment, gv schema.GroupVersion) (map[string]rest.Storage, error) {
	return k(env.Clock).Storage(env, gv)
}

// Register implements generic.Resource.
func (k clocked[T]) Register(scheme *runtime.Scheme, gv schema.GroupVersion) error {
	return k(nil).Register(scheme, gv)
}
