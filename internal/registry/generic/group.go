// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Resource is what a version of a group serves: a Kind, or another type for resources that
// are not stored (reviews, bindings).
type Resource interface {
	// Storage returns the endpoints, by resource and subresource name.
	Storage(env Environment, gv schema.GroupVersion) (map[string]rest.Storage, error)
	// Register adds to the scheme what the resource needs besides its types: defaults,
	// field labels.
	Register(scheme *runtime.Scheme, gv schema.GroupVersion) error
}

// Group is an API group and its versions, the preferred one first.
type Group struct {
	Name     string
	Versions []Version
	// Priority orders groups in discovery. The highest one wins a short name.
	Priority int32
	// Scheme adds the group's types and defaults.
	Scheme []func(*runtime.Scheme) error
}

// Version is one version of a group.
type Version struct {
	Name      string
	Resources []Resource
	// As is the version, of this or an earlier group, that serves and stores the resources of this
	// one. The scheme converts between the two.
	As schema.GroupVersion
	// Adapt returns the endpoints of this version, made of those of As; nil means the same ones.
	Adapt func(endpoints map[string]rest.Storage) map[string]rest.Storage
	// Scheme adds what only this version needs.
	Scheme []func(*runtime.Scheme) error
	// OffByDefault versions are served only if --runtime-config enables them.
	OffByDefault bool
}

// Register adds the group to the scheme under its versions, and under the internal version,
// which k8s.io/apiserver requires in two places. The Go types are the same, so that
// conversion between them only changes the version.
func (g Group) Register(scheme *runtime.Scheme) error {
	for _, add := range g.Scheme {
		if err := add(scheme); err != nil {
			return fmt.Errorf("group %q: %w", g.Name, err)
		}
	}
	var versions []schema.GroupVersion
	for _, version := range g.Versions {
		for _, add := range version.Scheme {
			if err := add(scheme); err != nil {
				return fmt.Errorf("group %q: %w", g.Name, err)
			}
		}
		gv := g.of(version)
		versions = append(versions, gv)
		for _, resource := range version.Resources {
			if err := resource.Register(scheme, gv); err != nil {
				return fmt.Errorf("group %q: %w", g.Name, err)
			}
		}
	}
	return scheme.SetVersionPriority(versions...)
}

// Register adds the kind's internal version and its selectable fields to the scheme.
func (k Kind[T]) Register(scheme *runtime.Scheme, gv schema.GroupVersion) error {
	internal := schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypeWithName(internal.WithKind(k.Name), k.New())
	scheme.AddKnownTypeWithName(internal.WithKind(k.Name+"List"), k.NewList())
	if len(k.Fields) == 0 {
		return nil // the scheme has the fields of every kind
	}
	return scheme.AddFieldLabelConversionFunc(gv.WithKind(k.Name), k.FieldLabel)
}

// FieldLabel accepts the selectable fields.
func (k Kind[T]) FieldLabel(label, value string) (string, string, error) {
	if name, ok := k.FieldSelection.Renamed[label]; ok {
		label = name
	}
	_, known := k.Fields[label]
	if known || label == "metadata.name" || label == "metadata.namespace" && !k.ClusterScoped && !k.FieldSelection.NamespaceUnselectable {
		return label, value, nil
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

// Built are the endpoints of the versions that were built so far.
type Built map[schema.GroupVersion]map[string]rest.Storage

// Build builds the endpoints of all versions.
func (g Group) Build(env Environment, built Built) error {
	for _, version := range g.Versions {
		if !version.As.Empty() {
			continue
		}
		endpoints, err := version.storage(env, g.Name)
		if err != nil {
			return err
		}
		built[g.of(version)] = endpoints
	}
	for _, version := range g.Versions {
		if version.As.Empty() {
			continue
		}
		endpoints, ok := built[version.As]
		if !ok {
			return fmt.Errorf("%s is served as %s, which is not", g.of(version), version.As)
		}
		if version.Adapt != nil {
			endpoints = version.Adapt(endpoints)
		}
		built[g.of(version)] = endpoints
	}
	return nil
}

func (g Group) of(version Version) schema.GroupVersion {
	return schema.GroupVersion{Group: g.Name, Version: version.Name}
}

// Orphans reports whether a deletion in a version of the API, without propagation policy, orphans
// the dependents of a resource's objects.
func (v Version) Orphans(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(v.Resources, func(r Resource) bool {
		kind, ok := r.(interface {
			orphans(resource schema.GroupVersionResource) bool
		})
		return ok && kind.orphans(resource)
	})
}

func (k Kind[T]) orphans(resource schema.GroupVersionResource) bool {
	return k.Plural == resource.Resource && k.orphansByDefault(resource.GroupVersion())
}

func (k *Kind[T]) orphansByDefault(gv schema.GroupVersion) bool {
	return k.Deletion.OrphanByDefault != nil && k.Deletion.OrphanByDefault(gv)
}

// storage returns the endpoints of all resources of the version.
func (v Version) storage(env Environment, group string) (map[string]rest.Storage, error) {
	out := map[string]rest.Storage{}
	gv := schema.GroupVersion{Group: group, Version: v.Name}
	for _, resource := range v.Resources {
		endpoints, err := resource.Storage(env, gv)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, endpoints)
	}
	return out, nil
}
