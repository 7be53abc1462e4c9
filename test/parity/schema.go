// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// schemaNode is the part of a value's OpenAPI v3 schema that mutations use.
type schemaNode struct {
	Ref                  string                 `json:"$ref"`
	AllOf                []schemaNode           `json:"allOf"`
	OneOf                []schemaNode           `json:"oneOf"`
	Type                 string                 `json:"type"`
	Format               string                 `json:"format"`
	Enum                 []any                  `json:"enum"`
	Required             []string               `json:"required"`
	Properties           map[string]*schemaNode `json:"properties"`
	Items                *schemaNode            `json:"items"`
	AdditionalProperties *schemaNode            `json:"additionalProperties"`
	MergeKey             string                 `json:"x-kubernetes-patch-merge-key"`
	Strategy             string                 `json:"x-kubernetes-patch-strategy"`
	Kinds                []groupVersionKind     `json:"x-kubernetes-group-version-kind"`
	// name is the name of the component, if the node is one.
	name string
}

type groupVersionKind struct{ Group, Version, Kind string }

// schemas are the components of upstream's OpenAPI v3 documents.
type schemas struct {
	server *server
	loaded map[schema.GroupVersion]bool
	byName map[string]*schemaNode
	byKind map[groupVersionKind]*schemaNode
}

func newSchemas(s *server) *schemas {
	return &schemas{server: s, loaded: map[schema.GroupVersion]bool{}, byName: map[string]*schemaNode{}, byKind: map[groupVersionKind]*schemaNode{}}
}

// of returns the schema of a kind, or nil if the OpenAPI document of the group version has none.
func (s *schemas) of(ctx context.Context, served schema.GroupVersion, gvk schema.GroupVersionKind) (*schemaNode, error) {
	if !s.loaded[served] {
		if err := s.load(ctx, served); err != nil {
			return nil, err
		}
		s.loaded[served] = true
	}
	return s.byKind[groupVersionKind{gvk.Group, gvk.Version, gvk.Kind}], nil
}

func (s *schemas) load(ctx context.Context, gv schema.GroupVersion) error {
	var document struct {
		Components struct {
			Schemas map[string]*schemaNode `json:"schemas"`
		} `json:"components"`
	}
	if err := s.server.get(ctx, "/openapi/v3"+root(gv), &document); err != nil {
		return err
	}
	for name, node := range document.Components.Schemas {
		node.name = name
		s.byName[name] = node
		// A component of several kinds, such as DeleteOptions, is not the schema of a stored object.
		if len(node.Kinds) == 1 {
			s.byKind[node.Kinds[0]] = node
		}
	}
	return nil
}

// resolve follows references. It keeps attributes next to a reference, such as the merge key.
func (s *schemas) resolve(n *schemaNode) *schemaNode {
	if n == nil {
		return &schemaNode{}
	}
	target := n.Ref
	if target == "" && len(n.AllOf) == 1 {
		target = n.AllOf[0].Ref
	}
	named, found := s.byName[strings.TrimPrefix(target, "#/components/schemas/")]
	if target == "" || !found {
		return n
	}
	resolved := *s.resolve(named)
	if n.MergeKey != "" {
		resolved.MergeKey, resolved.Strategy = n.MergeKey, n.Strategy
	}
	return &resolved
}

// child returns the schema of the item or property that the next step of a path selects.
func (s *schemas) child(n *schemaNode, step any) *schemaNode {
	n = s.resolve(n)
	if _, index := step.(int); index {
		return s.resolve(n.Items)
	}
	if property, found := n.Properties[step.(string)]; found {
		return s.resolve(property)
	}
	return s.resolve(n.AdditionalProperties)
}

// is reports whether the node is the component of a Go type, such as "resource.Quantity".
func (n *schemaNode) is(typeName string) bool { return strings.HasSuffix(n.name, "."+typeName) }

// requires reports whether a property is required.
func (n *schemaNode) requires(property string) bool { return slices.Contains(n.Required, property) }
