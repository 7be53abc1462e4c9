// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Hidden is the standing of a reference whose owner the caller may not read.
const Hidden = "hidden"

// The graph's names of standings.
const (
	// Solid is the standing of a reference whose owner exists, and Pending that of one whose owner the graph has not looked up.
	Solid   = "solid"
	Pending = "pending"

	dangles    = "dangling"
	unresolved = "unresolved"
)

// Object is an object of the graph with what else the rules need.
type Object struct {
	graph.Object
	// Labels and Created are required only for the objects for which NeedsLabels, or a profile's Of, returns true.
	Labels  map[string]string
	Created time.Time
	// Unlabelled is set if Labels and Created cannot be read.
	Unlabelled bool
	// Hold is set for objects on hold.
	Hold *ownership.Hold
	// NamedBy are required only for the objects for which a profile's NeedsNames returns true.
	NamedBy []Namer
}

// Namer is an object whose spec names another one.
type Namer struct{ Kind, Name string }

// Kind is a served kind.
type Kind struct {
	Namespaced bool
	// Collected is true if the collector watches the objects of the kind: all kinds that can be
	// listed, watched and deleted, except events. It knows other objects only as owners.
	Collected bool
	// Complete is true if the snapshot contains all objects of the kind.
	Complete bool
	// Versions are the apiVersions that serve the kind, the preferred one first. It is empty if they
	// are not known.
	Versions []string
}

// Snapshot is the input of the rules.
type Snapshot struct {
	kinds   map[schema.GroupKind]Kind
	objects []*Object
	byUID   map[types.UID]*Object
	byName  map[nameKey]*Object
	crowds  map[crowd]count
	// cycles has, for each object in a cycle, its strongly connected component, sorted.
	cycles map[*Object][]*Object
	// profile may be nil.
	profile *Profile
	now     time.Time
}

type nameKey struct {
	schema.GroupKind
	namespace, name string
}

// NewSnapshot returns a snapshot of objects: those to check, and the owners and siblings that the
// rules compare them with.
func NewSnapshot(objects []*Object, kinds map[schema.GroupKind]Kind) *Snapshot {
	s := &Snapshot{
		kinds: kinds, objects: slices.Clone(objects),
		byUID: map[types.UID]*Object{}, byName: map[nameKey]*Object{}, crowds: map[crowd]count{},
		cycles: map[*Object][]*Object{},
	}
	slices.SortFunc(s.objects, compare)
	for _, o := range s.objects {
		s.byUID[o.UID] = o
		s.byName[nameKey{groupKind(o), o.Namespace, o.Name}] = o
	}
	for _, o := range s.objects {
		s.join(o)
	}
	s.findCycles()
	return s
}

// Under returns the snapshot for a check under a profile, or under none, at a time.
func (s *Snapshot) Under(p *Profile, now time.Time) *Snapshot {
	s.profile, s.now = p, now
	return s
}

func groupKind(o *Object) schema.GroupKind {
	return schema.GroupKind{Group: o.Group, Kind: o.Kind}
}

func compare(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// ownerKind returns the kind that a reference names.
func ownerKind(ref graph.Owner) schema.GroupKind {
	return graph.Current(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
}

// named returns the object with the kind and name of a reference of o, regardless of its UID.
func (s *Snapshot) named(o *Object, ref graph.Owner) (*Object, bool) {
	gk := ownerKind(ref)
	namespace := ""
	if s.kinds[gk].Namespaced {
		namespace = o.Namespace
	}
	named, ok := s.byName[nameKey{gk, namespace, ref.Name}]
	return named, ok
}
