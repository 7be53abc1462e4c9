// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is what the graph knows of an object.
type Object struct {
	Resource
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Finalizers      []string
	// Deleting tells whether the object has a deletion timestamp.
	Deleting bool
	// Held reports whether the object has the annotation that keeps controllers off it.
	Held   bool
	Owners []Owner
	// Lost are references that were taken away from the object though their owners exist and
	// stay, and that nothing has replaced. The graph remembers what it has seen itself.
	Lost []metav1.OwnerReference
}

// Owner is an owner reference of an object, and how it stands: solid, waiting,
// dangling, unresolved or, as long as the API has to be asked, pending.
type Owner struct {
	metav1.OwnerReference
	Standing string
	// Followed tells that the owner was observed and that the reference names it rightly. A
	// dangling reference that is followed is to an owner that was deleted; one that is not, to
	// an object of which nothing is known but the reference.
	Followed bool
}

// Object returns the observed object of a UID.
func (g *Graph) Object(id types.UID) (Object, bool) {
	n := g.find(id)
	if n == nil || !n.is(observed) {
		return Object{}, false
	}
	return g.object(n), true
}

func (g *Graph) object(n *node) Object {
	o := Object{
		Resource:        n.resource.Resource,
		Namespace:       n.namespace.Value(),
		Name:            n.name,
		UID:             g.uids.uid(n.uid),
		ResourceVersion: n.version,
		Finalizers:      splitFinalizers(n.finalizers.Value()),
		Deleting:        n.is(deleting),
		Held:            n.is(held),
		Lost:            g.lostOf(n),
	}
	for i := range n.edges {
		e := &n.edges[i]
		o.Owners = append(o.Owners, Owner{OwnerReference: g.reference(e), Standing: g.standing(e).String(), Followed: e.is(followed)})
	}
	return o
}

// meta is the object's metadata, as far as it is known.
func (o *Object) meta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Finalizers: o.Finalizers,
	}
	if o.Deleting {
		meta.DeletionTimestamp = &metav1.Time{}
	}
	for i := range o.Owners {
		meta.OwnerReferences = append(meta.OwnerReferences, o.Owners[i].OwnerReference)
	}
	return meta
}

// Dependents returns the UIDs of the objects that refer to a UID as an owner,
// rightly or not, in no particular order. The owner need not exist.
func (g *Graph) Dependents(id types.UID) []types.UID {
	n := g.find(id)
	if n == nil {
		return nil
	}
	ids := make([]types.UID, len(n.dependents))
	for i, dependent := range n.dependents {
		ids[i] = g.uids.uid(dependent.uid)
	}
	return ids
}

// OwnersFirst sorts UIDs so that no object comes after one that it owns, directly or through
// others, whether these are among the UIDs or not. Unrelated objects, and those that own each
// other, stay in the order given.
func (g *Graph) OwnersFirst(ids []types.UID) []types.UID {
	var nodes []*node
	for _, id := range slices.Backward(ids) {
		if n := g.find(id); n != nil {
			nodes = append(nodes, n)
		}
	}
	component := Components(nodes, func(n *node) []*node { return n.dependents })
	sorted := slices.Clone(ids)
	slices.SortStableFunc(sorted, func(a, b types.UID) int {
		return cmp.Compare(component[g.find(b)], component[g.find(a)])
	})
	return sorted
}

// splitFinalizers undoes the joining of a node's finalizers.
func splitFinalizers(joined string) []string {
	if joined == "" {
		return nil
	}
	return strings.Split(joined, "\n")
}

// Served returns the resource that objects of a kind are served as.
func (g *Graph) Served(kind schema.GroupKind) (Resource, bool) {
	r, ok := g.served[kind]
	if !ok {
		return Resource{}, false
	}
	return r.Resource, true
}

// Resources returns the resources that are served, in no particular order.
func (g *Graph) Resources() []Resource {
	all := make([]Resource, 0, len(g.resources))
	for _, r := range g.resources {
		all = append(all, r.Resource)
	}
	return all
}

// Unlisted returns the watched resources whose objects are not known yet.
func (g *Graph) Unlisted() []Resource {
	var unlisted []Resource
	for _, r := range g.resources {
		if r.Watched && !r.listed {
			unlisted = append(unlisted, r.Resource)
		}
	}
	return unlisted
}

// Select returns the objects of chosen resources and namespaces, in no particular order. It
// looks at every object.
func (g *Graph) Select(choose func(r Resource, namespace string) bool) []Object {
	var chosen []Object
	for _, n := range g.nodes {
		if n.is(observed) && choose(n.resource.Resource, n.namespace.Value()) {
			chosen = append(chosen, g.object(n))
		}
	}
	return chosen
}

// Held returns the objects on hold, in no particular order.
func (g *Graph) Held() []Object {
	objects := make([]Object, 0, len(g.holds))
	for n := range g.holds {
		objects = append(objects, g.object(n))
	}
	return objects
}

// Waits returns what the deletion of an object waits for now; nothing when it is not being
// deleted.
func (g *Graph) Waits(id types.UID) []Block {
	n := g.find(id)
	if n == nil || !n.has(observed|deleting) {
		return nil
	}
	return g.waits(n)
}

// waits are the finalizers of n, which is being deleted, and the dependents that it waits for.
func (g *Graph) waits(n *node) []Block {
	blocks := finalizerBlocks(n)
	if !n.waiting() {
		return blocks
	}
	for _, dependent := range n.dependents {
		if dependent.blocks(n) {
			blocks = append(blocks, Block{Dependent: g.uids.uid(dependent.uid)})
		}
	}
	return blocks
}

// finalizerBlocks returns a Block for each finalizer of n that is not the collector's.
func finalizerBlocks(n *node) []Block {
	var blocks []Block
	for _, f := range splitFinalizers(n.finalizers.Value()) {
		if foreign(f) {
			blocks = append(blocks, Block{Finalizer: f})
		}
	}
	return blocks
}
