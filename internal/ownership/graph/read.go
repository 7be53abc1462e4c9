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

// Object is an observed object.
type Object struct {
	Resource
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Finalizers      []string
	// Deleting is true if the object has a deletion timestamp.
	Deleting bool
	// Held is true if the object has the annotation that pauses controllers for it.
	Held   bool
	Owners []Owner
	// Lost are the references to live owners that were removed from the object and not
	// replaced by another owner, as far as this graph has observed it.
	Lost []metav1.OwnerReference
}

// Owner is an owner reference of an object. Its standing is solid, waiting, dangling, unresolved
// or, before a lookup has settled it, pending.
type Owner struct {
	metav1.OwnerReference
	Standing string
	// Followed is true if the owner was observed and the reference names it correctly. If a
	// dangling reference is followed, its owner was observed and deleted; if it is not, the
	// owner was never observed.
	Followed bool
}

// Object returns the observed object with a UID.
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
		UID:             g.uids.expand(n.uid),
		ResourceVersion: n.version,
		Finalizers:      splitFinalizers(n.finalizers.Value()),
		Deleting:        n.is(deleting),
		Held:            n.is(held),
		Lost:            g.lostOf(n),
	}
	for i := range n.edges {
		e := &n.edges[i]
		o.Owners = append(o.Owners, Owner{OwnerReference: g.ownerReference(e), Standing: g.classify(e).String(), Followed: e.is(followed)})
	}
	return o
}

// meta returns the object's metadata, as far as it is known.
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

// Dependents returns the UIDs of the objects that name a UID as an owner, whether or not the
// reference is valid and the owner exists, in no particular order.
func (g *Graph) Dependents(id types.UID) []types.UID {
	n := g.find(id)
	if n == nil {
		return nil
	}
	ids := make([]types.UID, len(n.dependents))
	for i, dependent := range n.dependents {
		ids[i] = g.uids.expand(dependent.uid)
	}
	return ids
}

// OwnersFirst sorts UIDs so that owners come before their direct and indirect dependents, even
// if the objects between them are not in ids. Unrelated objects, and objects in one cycle, keep
// their order.
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

// splitFinalizers splits the joined finalizers of a node.
func splitFinalizers(joined string) []string {
	if joined == "" {
		return nil
	}
	return strings.Split(joined, "\n")
}

// Served returns the resource that serves a kind.
func (g *Graph) Served(kind schema.GroupKind) (Resource, bool) {
	r, ok := g.served[Current(kind)]
	if !ok {
		return Resource{}, false
	}
	return r.Resource, true
}

// Resources returns the served resources, in no particular order.
func (g *Graph) Resources() []Resource {
	all := make([]Resource, 0, len(g.resources))
	for _, r := range g.resources {
		all = append(all, r.Resource)
	}
	return all
}

// Unlisted returns the watched resources that have not been listed yet.
func (g *Graph) Unlisted() []Resource {
	var unlisted []Resource
	for _, r := range g.resources {
		if r.Watched && !r.listed {
			unlisted = append(unlisted, r.Resource)
		}
	}
	return unlisted
}

// Select returns the objects whose resource and namespace choose accepts, in no particular
// order. It visits every object.
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

// Waits returns what the deletion of an object waits for. It returns nothing if the object is
// not being deleted.
func (g *Graph) Waits(id types.UID) []Block {
	n := g.find(id)
	if n == nil || !n.is(observed|deleting) {
		return nil
	}
	return g.waits(n)
}

// waits returns the finalizers of n, which is being deleted, and the dependents that it waits for.
func (g *Graph) waits(n *node) []Block {
	blocks := finalizerBlocks(n)
	if !n.isWaiting() {
		return blocks
	}
	for _, dependent := range n.dependents {
		if dependent.blocks(n) {
			blocks = append(blocks, Block{Dependent: g.uids.expand(dependent.uid)})
		}
	}
	return blocks
}

// finalizerBlocks returns a Block for each finalizer of n that the collector does not own.
func finalizerBlocks(n *node) []Block {
	var blocks []Block
	for _, f := range splitFinalizers(n.finalizers.Value()) {
		if isForeignFinalizer(f) {
			blocks = append(blocks, Block{Finalizer: f})
		}
	}
	return blocks
}
