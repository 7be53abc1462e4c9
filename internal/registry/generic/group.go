// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"fmt"
	"maps"

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
	// As names the version that serves and stores the resources of this one. The scheme
	// converts between the two.
	As string
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
		gv := schema.GroupVersion{Group: g.Name, Version: version.Name}
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

// Storage returns the endpoints of all versions, by version.
func (g Group) Storage(env Environment) (map[string]map[string]rest.Storage, error) {
	out := map[string]map[string]rest.Storage{}
	for _, version := range g.Versions {
		if version.As != "" {
			continue
		}
		endpoints, err := version.storage(env, g.Name)
		if err != nil {
			return nil, err
		}
		out[version.Name] = endpoints
	}
	for _, version := range g.Versions {
		if version.As != "" {
			out[version.Name] = out[version.As]
		}
	}
	return out, nil
}

// Orphans reports whether a deletion without propagation policy orphans the dependents of a
// resource's objects.
func (g Group) Orphans(ctx context.Context, plural string) bool {
	for _, version := range g.Versions {
		for _, resource := range version.Resources {
			if kind, ok := resource.(interface {
				orphans(ctx context.Context, plural string) bool
			}); ok && kind.orphans(ctx, plural) {
				return true
			}
		}
	}
	return false
}

func (k Kind[T]) orphans(ctx context.Context, plural string) bool {
	return k.Plural == plural && k.orphansByDefault(ctx)
}

func (k *Kind[T]) orphansByDefault(ctx context.Context) bool {
	return k.Deletion.OrphanByDefault != nil && k.Deletion.OrphanByDefault(ctx)
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
