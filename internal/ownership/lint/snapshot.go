// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Hidden is the standing of a reference whose owner the caller may not read.
const Hidden = "hidden"

// The standings of the graph.
const (
	dangles    = "dangling"
	unresolved = "unresolved"
	pending    = "pending"
)

// Object is an object, as the graph knows it.
type Object struct {
	graph.Object
	// Labels need be known only of objects that noOwner compares: see NeedsLabels.
	Labels map[string]string
	// Hold is set for objects on hold.
	Hold *ownership.Hold
}

// Kind is a kind that is served.
type Kind struct {
	Namespaced bool
	// Collected tells that objects of the kind are watched by the collector: that they can be
	// listed, watched and deleted, and are no events. Of others it knows as owners alone.
	Collected bool
	// Complete tells that all of them are known.
	Complete bool
	// Versions are the versions that serve the kind, the preferred one first. Without any it is
	// not known which these are.
	Versions []string
}

// Snapshot is what the rules look at.
type Snapshot struct {
	kinds   map[schema.GroupKind]Kind
	objects []*Object
	byUID   map[types.UID]*Object
	byName  map[nameKey]*Object
	crowds  map[crowd]count
	// circles has, for each object that is in one, all objects that own it and that it owns.
	circles map[*Object][]*Object
}

type nameKey struct {
	schema.GroupKind
	namespace, name string
}

// NewSnapshot makes a snapshot of all objects that matter: those to check, and the owners and
// siblings that they are compared with.
func NewSnapshot(objects []*Object, kinds map[schema.GroupKind]Kind) *Snapshot {
	s := &Snapshot{
		kinds: kinds, objects: slices.Clone(objects),
		byUID: map[types.UID]*Object{}, byName: map[nameKey]*Object{}, crowds: map[crowd]count{},
		circles: map[*Object][]*Object{},
	}
	slices.SortFunc(s.objects, compare)
	for _, o := range s.objects {
		s.byUID[o.UID] = o
		s.byName[nameKey{groupKind(o), o.Namespace, o.Name}] = o
	}
	for _, o := range s.objects {
		s.join(o)
	}
	s.findCircles()
	return s
}

func groupKind(o *Object) schema.GroupKind {
	return schema.GroupKind{Group: o.Group, Kind: o.Kind}
}

func compare(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// ownerKind is the kind that a reference names.
func ownerKind(ref graph.Owner) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}

// named returns the object that a reference of o names, whatever its UID.
func (s *Snapshot) named(o *Object, ref graph.Owner) (*Object, bool) {
	gk := ownerKind(ref).GroupKind()
	namespace := ""
	if s.kinds[gk].Namespaced {
		namespace = o.Namespace
	}
	named, ok := s.byName[nameKey{gk, namespace, ref.Name}]
	return named, ok
}
