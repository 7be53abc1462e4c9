// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names an object.
type Ref struct {
	schema.GroupVersionKind
	Namespace, Name string
}

func (r Ref) String() string { return describe(r.object()) }

// object returns an object with only that kind and name.
func (r Ref) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.GroupVersionKind)
	object.SetNamespace(r.Namespace)
	object.SetName(r.Name)
	return object
}

// source is the source of a graph: a cluster or a directory.
type source interface {
	// read reads the current graph, and returns the roots that do not exist.
	read(ctx context.Context) (g *Graph, missing []Ref, err error)
	String() string
}

// live is a graph in a cluster, of the kinds in some groups.
type live struct {
	cluster *Cluster
	roots   []Ref
	has     func(group string) bool
}

func (l *live) String() string { return l.cluster.Name }

func (l *live) read(ctx context.Context) (*Graph, []Ref, error) {
	roots := map[types.UID]Ref{}
	var missing []Ref
	for _, ref := range l.roots {
		object, err := l.cluster.get(ctx, ref.object())
		switch {
		case err != nil:
			return nil, nil, err
		case object == nil:
			missing = append(missing, ref)
		default:
			roots[object.GetUID()] = ref
		}
	}
	if len(roots) == 0 {
		return nil, missing, nil
	}
	g, err := l.readGraph(ctx, roots)
	if err != nil {
		return nil, nil, err
	}
	// A root may be deleted between the two reads.
	for uid, ref := range roots {
		if g.byUID[uid] == nil {
			missing = append(missing, ref)
		}
	}
	return g, missing, nil
}

// namespacesOf returns the namespaces in which dependents of some objects can be: those of
// namespaced objects are in the same namespace. It returns nil if they can be anywhere.
func namespacesOf(refs []Ref) []string {
	var namespaces []string
	for _, ref := range refs {
		if ref.Namespace == "" {
			return nil
		}
		namespaces = append(namespaces, ref.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// readGraph reads the graph of some roots. It reads only metadata of objects outside of the graph,
// and of those that their controller recreates.
func (l *live) readGraph(ctx context.Context, refs map[types.UID]Ref) (*Graph, error) {
	roots := map[types.UID]bool{}
	for uid := range refs {
		roots[uid] = true
	}
	listed, err := l.cluster.list(ctx, namespacesOf(l.roots), l.has)
	if err != nil {
		return nil, err
	}
	all := make([]metav1.Object, len(listed))
	for i := range listed {
		all[i] = listed[i]
	}
	members := Members(all, roots)
	var objects []*unstructured.Unstructured
	for _, object := range listed {
		if !members[object.GetUID()] {
			continue
		}
		known, err := metadataOf(object)
		if err != nil {
			return nil, err
		}
		// The same object may be listed under two groups.
		delete(members, object.GetUID())
		if controller := metav1.GetControllerOfNoCopy(object); controller != nil && isRecreatable(known) {
			objects = append(objects, known)
			continue
		}
		whole, err := l.cluster.get(ctx, known)
		if err != nil {
			return nil, err
		}
		// Ignore an object that was deleted in the meantime.
		if whole != nil && whole.GetUID() == object.GetUID() {
			objects = append(objects, whole)
		}
	}
	return Assemble(objects, roots), nil
}

func metadataOf(object *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object.Name, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// names joins refs for a message.
func names(refs []Ref) string {
	unique := map[string]bool{}
	for _, ref := range refs {
		unique[ref.String()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(unique)), ", ")
}
