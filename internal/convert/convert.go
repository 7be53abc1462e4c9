// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/auth/rbac"
	"github.com/kindred-project/kindred/internal/registry"
)

// Converter converts objects of built-in kinds.
type Converter struct {
	scheme *runtime.Scheme
	// successors are, for each version that is not stored, the versions as which its kinds are stored.
	successors map[schema.GroupVersion][]schema.GroupVersion
	// groups are the versions of each group, the preferred one first.
	groups map[string][]schema.GroupVersion
}

// New returns a converter between all versions of all built-in groups.
func New() (*Converter, error) {
	c := &Converter{scheme: runtime.NewScheme(), successors: map[schema.GroupVersion][]schema.GroupVersion{}, groups: map[string][]schema.GroupVersion{}}
	for _, group := range registry.Groups(registry.Dependencies{Escalation: &rbac.Escalation{}}) {
		if err := group.Register(c.scheme); err != nil {
			return nil, err
		}
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Name}
			c.groups[group.Name] = append(c.groups[group.Name], gv)
			if !version.As.Empty() {
				c.successors[gv] = append(c.successors[gv], version.As)
			}
		}
	}
	for gv, successor := range removed {
		if !slices.Contains(c.groups[gv.Group], gv) {
			c.groups[gv.Group] = append(c.groups[gv.Group], gv)
		}
		c.successors[gv] = append(c.successors[gv], successor)
	}
	return c, addRemoved(c.scheme)
}

// CheckVersion returns an error for a version of which no kind is known.
func (c *Converter) CheckVersion(gv schema.GroupVersion) error {
	known := c.groups[gv.Group]
	switch {
	case slices.Contains(known, gv):
		return nil
	case len(known) > 0:
		return fmt.Errorf("unknown version %s; there are %s", gv, join(known))
	}
	return fmt.Errorf("unknown version %s: no built-in API group is called %q", gv, gv.Group)
}

// stored returns the kind as which a kind is stored: the preferred version.
func (c *Converter) stored(kind schema.GroupVersionKind) (schema.GroupVersionKind, bool) {
	if !slices.Contains(c.groups[kind.Group], kind.GroupVersion()) || !c.scheme.Recognizes(kind) {
		return kind, false
	}
	if len(c.successors[kind.GroupVersion()]) == 0 {
		return kind, true
	}
	for _, successor := range c.successors[kind.GroupVersion()] {
		if stored := successor.WithKind(kind.Kind); c.scheme.Recognizes(stored) {
			return stored, true
		}
	}
	return kind, false
}

// versions returns all versions of a stored kind.
func (c *Converter) versions(stored schema.GroupVersionKind) []schema.GroupVersion {
	found := []schema.GroupVersion{stored.GroupVersion()}
	for _, group := range slices.Sorted(maps.Keys(c.groups)) {
		for _, gv := range c.groups[group] {
			if of, known := c.stored(gv.WithKind(stored.Kind)); known && of == stored && !slices.Contains(found, gv) {
				found = append(found, gv)
			}
		}
	}
	return found
}

func join(versions []schema.GroupVersion) string {
	var names []string
	for _, gv := range versions {
		names = append(names, gv.String())
	}
	return strings.Join(names, ", ")
}

// Result is a converted object.
type Result struct {
	Object *unstructured.Unstructured
	// Changed is false if the object is already in the version, or cannot be converted.
	Changed bool
	// Notes say what a reader of the manifest should know.
	Notes []string
}

// Convert converts an object to a version; an empty version means the preferred one. Objects of other
// kinds, and kinds that do not have the version, are left unchanged.
func (c *Converter) Convert(in *unstructured.Unstructured, to schema.GroupVersion) (Result, error) {
	if in.GroupVersionKind() == (schema.GroupVersionKind{Version: "v1", Kind: "List"}) {
		return c.convertItems(in, to)
	}
	from := in.GroupVersionKind()
	stored, known := c.stored(from)
	if kind, isList := strings.CutSuffix(from.Kind, "List"); isList && known {
		return c.convertList(in, from.GroupVersion().WithKind(kind), to)
	}
	unchanged := Result{Object: in, Notes: createdBy(in)}
	if !known {
		unchanged.Notes = append(unchanged.Notes, c.unknown(from))
		return unchanged, nil
	}
	target := stored
	if !to.Empty() {
		target = to.WithKind(from.Kind)
	}
	if of, ok := c.stored(target); !ok || of != stored {
		unchanged.Notes = append(unchanged.Notes, fmt.Sprintf("left unchanged: %s has no %s; it exists in %s", to, from.Kind, join(c.versions(stored))))
		return unchanged, nil
	}
	if target == from {
		return unchanged, nil
	}
	out, err := c.convert(in, conversion{from: from, stored: stored, to: target})
	out.Notes = append(unchanged.Notes, out.Notes...)
	return out, err
}

// unknown explains why an object is left unchanged.
func (c *Converter) unknown(kind schema.GroupVersionKind) string {
	if kind.Kind == "PodSecurityPolicy" && (kind.Group == "policy" || kind.Group == "extensions") {
		return "left unchanged: PodSecurityPolicy was removed in Kubernetes 1.25 without a successor; Pod Security admission replaces it"
	}
	switch known := c.groups[kind.Group]; {
	case slices.Contains(known, kind.GroupVersion()):
		return fmt.Sprintf("left unchanged: %s in %s has no conversion", kind.Kind, kind.GroupVersion())
	case len(known) > 0:
		return fmt.Sprintf("left unchanged: %s is not a version that can be converted; there are %s", kind.GroupVersion(), join(known))
	}
	return fmt.Sprintf("left unchanged: %s in %s is not a built-in kind; only the server of its API can convert it", kind.Kind, kind.GroupVersion())
}

// convertList converts a list of one kind: its items, which need not name their kind.
func (c *Converter) convertList(in *unstructured.Unstructured, kind schema.GroupVersionKind, to schema.GroupVersion) (Result, error) {
	list := in.DeepCopy()
	items, _ := list.Object["items"].([]any)
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			(&unstructured.Unstructured{Object: fields}).SetGroupVersionKind(kind)
		}
	}
	out, err := c.convertItems(list, to)
	if err != nil || !out.Changed {
		return Result{Object: in, Notes: out.Notes}, err
	}
	items, _ = out.Object.Object["items"].([]any)
	for _, item := range items {
		fields := item.(map[string]any)
		out.Object.SetAPIVersion(fmt.Sprint(fields["apiVersion"]))
		delete(fields, "apiVersion")
		delete(fields, "kind")
	}
	return out, nil
}

// convertItems converts each object of a List of kinds.
func (c *Converter) convertItems(list *unstructured.Unstructured, to schema.GroupVersion) (Result, error) {
	out := Result{Object: list.DeepCopy()}
	items, ok := out.Object.Object["items"].([]any)
	if !ok && out.Object.Object["items"] != nil {
		return out, errors.New("items is not a list")
	}
	for i := range items {
		fields, ok := items[i].(map[string]any)
		if !ok {
			return out, fmt.Errorf("items[%d] is not an object", i)
		}
		item := &unstructured.Unstructured{Object: fields}
		if item.GetAPIVersion() == "" || item.GetKind() == "" {
			return out, fmt.Errorf("items[%d] has no apiVersion or no kind", i)
		}
		result, err := c.Convert(item, to)
		if err != nil {
			return out, fmt.Errorf("items[%d], %s: %w", i, Name(item), err)
		}
		items[i], out.Changed = result.Object.Object, out.Changed || result.Changed
		for _, note := range result.Notes {
			out.Notes = append(out.Notes, fmt.Sprintf("items[%d], %s: %s", i, Name(item), note))
		}
	}
	return out, nil
}

// Name returns kind and name of an object, for messages.
func Name(o *unstructured.Unstructured) string {
	if name := o.GetName(); name != "" {
		return o.GetKind() + "/" + name
	}
	return o.GetKind()
}
