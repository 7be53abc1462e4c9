// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Resource is a resource that the API serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Watched tells that its objects are listed and watched. Of any other
	// resource the graph knows an object only by looking it up.
	Watched bool
}

type resource struct {
	Resource
	listed  bool // all its objects were observed once
	givenUp bool // its list failed for so long that nothing waits for it
	objects int  // observed nodes of this resource

	// seen is the newest version that the resource's lists and watches told of.
	seen string
}

func (r *resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// pending tells whether r's objects are still to be expected from its first list.
func (r *resource) pending() bool { return r.Watched && !r.listed && !r.givenUp }

// Serve tells that the API serves r, newly or in another version than before.
func (g *Graph) Serve(r Resource) {
	current, ok := g.resources[r.GroupResource()]
	if !ok {
		current = &resource{}
		g.resources[r.GroupResource()] = current
	}
	g.change(current, func() { current.Resource = r })
	if other, taken := g.served[current.groupKind()]; !taken || current.Watched && !other.Watched {
		g.served[current.groupKind()] = current
	}
	g.askAgain(current.groupKind())
}

// Unserve tells that the API does not serve the resource any more. What was known
// of its objects is void: references to them are unresolved until it is served
// again, and they hold up nobody, since nobody could delete them.
func (g *Graph) Unserve(gr schema.GroupResource) {
	r, ok := g.resources[gr]
	if !ok {
		return
	}
	delete(g.resources, gr)
	if g.served[r.groupKind()] == r {
		delete(g.served, r.groupKind())
		for _, other := range g.resources {
			if other.groupKind() == r.groupKind() {
				g.served[r.groupKind()] = other
			}
		}
	}
	for _, n := range g.nodes {
		if n.is(observed) && n.resource == r {
			g.unknow(n)
		}
	}
	g.change(r, func() { r.Watched = false })
}

// GiveUp tells that the resource cannot be listed for now: a conversion webhook
// fails, an aggregated server is down. Nothing waits for it any longer, and
// owners of its kind are looked up one by one.
func (g *Graph) GiveUp(gr schema.GroupResource) {
	if r, ok := g.resources[gr]; ok && r.pending() {
		g.change(r, func() { r.givenUp = true })
		g.askAgain(r.groupKind())
	}
}

// Complete tells whether all watched resources were listed or given up on.
func (g *Graph) Complete() bool { return g.unlisted == 0 }

// Replace tells all objects of a resource, as a list at resourceVersion shows them.
func (g *Graph) Replace(gr schema.GroupResource, objects []metav1.Object, resourceVersion string) {
	r, ok := g.resources[gr]
	if !ok {
		return
	}
	listed := make(map[*node]struct{}, len(objects))
	for _, object := range objects {
		g.observe(r, object)
		if n := g.find(object.GetUID()); n != nil && n.is(observed) && n.resource == r {
			listed[n] = struct{}{}
		}
	}
	if r.objects > len(listed) {
		g.reconcileList(r, listed, resourceVersion)
	}
	r.seen = resourceVersion
	g.change(r, func() { r.listed, r.givenUp = true, false })
	g.askAgain(r.groupKind())
}

// reconcileList deals with the nodes of r that a list at the given version lacks.
func (g *Graph) reconcileList(r *resource, listed map[*node]struct{}, version string) {
	for _, n := range g.nodes {
		if _, ok := listed[n]; ok || !n.is(observed) || n.resource != r {
			continue
		}
		switch order, err := resourceversion.CompareResourceVersion(n.version, version); {
		case err != nil:
			// No telling whether the list is newer than what was seen: the
			// owners among them are looked up.
			g.unknow(n)
		case order <= 0:
			g.gone(n)
		}
	}
}

// change runs f, which changes r, and keeps the count of unlisted resources.
func (g *Graph) change(r *resource, f func()) {
	if r.pending() {
		g.unlisted--
	}
	f()
	if r.pending() {
		g.unlisted++
	}
	if g.unlisted > 0 {
		return
	}
	waiting := g.parked
	g.parked = nil
	for _, n := range waiting {
		n.state &^= parked
		g.enqueue(n)
	}
}

// park puts the decision about n off until everything is listed.
func (g *Graph) park(n *node) {
	if !n.is(parked) {
		n.state |= parked
		g.parked = append(g.parked, n)
	}
}

// askAgain has the dependents decided about whose claims a change of what is
// served could settle. Claims are few: they are references to what was not observed.
func (g *Graph) askAgain(gk schema.GroupKind) {
	for _, c := range g.claims {
		if c.GroupKind == gk && (c.verdict == unknown || c.verdict == unclear) {
			c.verdict = unknown
			g.enqueueDependents(c.owner)
		}
	}
}
