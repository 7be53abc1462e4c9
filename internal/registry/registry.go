// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry lists the built-in API groups. Each group is a package below
// this one, each kind one value in one file of its group.
package registry

import (
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are what some kinds need besides storage.
type Dependencies struct {
	Clock clock.WithTicker
}

// Groups are all built-in groups.
func Groups(d Dependencies) []generic.Group {
	return []generic.Group{
		core.Group(core.Dependencies{}),
	}
}
