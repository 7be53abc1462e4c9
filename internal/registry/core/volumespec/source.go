// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumespec checks the specs of PersistentVolumes and of claims, and the volume sources that
// PersistentVolumes share with the volumes of pods. Package podspec checks the sources that only pods
// have.
package volumespec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Source is one type of source. S is the struct in which one source is set: v1.VolumeSource or
// v1.PersistentVolumeSource.
type Source[S any] struct {
	name string
	// path is the path of errors inside the source.
	path string
	// beside permits the source in addition to an earlier one.
	beside bool
	isSet  func(*S) bool
	rule   func(*check.Checker, *S, *field.Path)
}

func SourceOf[S, T any](name string, source func(*S) *T, rule func(*check.Checker, *T, *field.Path)) Source[S] {
	return Source[S]{
		name:  name,
		path:  name,
		isSet: func(s *S) bool { return source(s) != nil },
		rule:  func(c *check.Checker, s *S, path *field.Path) { rule(c, source(s), path) },
	}
}

func (t Source[S]) Under(path string) Source[S] {
	t.path = path
	return t
}

// OneSource requires exactly one valid source, and returns its name.
func OneSource[S any](c *check.Checker, types []Source[S], source *S, path *field.Path) string {
	found := ""
	for i := range types {
		t := &types[i]
		if !t.isSet(source) {
			continue
		}
		if found != "" && !t.beside {
			c.Forbidden(path.Child(t.name), "may not specify more than 1 volume type")
			continue
		}
		found = t.name
		t.rule(c, source, path.Child(t.path))
	}
	if found == "" {
		c.Required(path, "must specify a volume type")
	}
	return found
}

const (
	MaxISCSIName  = 64
	LongISCSIName = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)

func ValidateHostPath(c *check.Checker, host *v1.HostPathVolumeSource, path *field.Path) {
	if !c.NonEmpty(path.Child("path"), host.Path) {
		return
	}
	c.NoBacksteps(path.Child("path"), host.Path)
	check.OptionalOneOf(c, path.Child("type"), host.Type,
		v1.HostPathUnset, v1.HostPathBlockDev, v1.HostPathCharDev, v1.HostPathDirectory,
		v1.HostPathDirectoryOrCreate, v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket)
}
