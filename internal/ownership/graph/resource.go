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
	// Watched is true if the objects are listed and watched. Objects of other resources
	// are known only by lookups.
	Watched bool
}

type resource struct {
	Resource
	listed  bool // the first list is complete
	givenUp bool // the first list failed for so long that nothing waits for it
	objects int  // observed nodes of this resource

	// latest is the newest version that a list or watch of the resource delivered.
	latest string
}

func (r *resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// awaitsList reports whether decisions still wait for r's first list.
func (r *resource) awaitsList() bool { return r.Watched && !r.listed && !r.givenUp }

// Serve records that the API serves r, for the first time or in another version.
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
	g.retryUnverified(current.groupKind())
}

// Unserve records that the API no longer serves the resource. Its objects become virtual:
// references to them are unresolved until the resource is served again, and they do not block
// their owners, because no client could delete them.
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
			g.makeVirtual(n)
		}
	}
	g.change(r, func() { r.Watched = false })
}

// GiveUp records that the resource cannot be listed for now, for example because a conversion
// webhook fails or an aggregated API server is down. Decisions no longer wait for its list, and
// owners of its kind are looked up one by one.
func (g *Graph) GiveUp(gr schema.GroupResource) {
	if r, ok := g.resources[gr]; ok && r.awaitsList() {
		g.change(r, func() { r.givenUp = true })
		g.retryUnverified(r.groupKind())
	}
}

// Discovering records that the API serves resources which the graph does not know yet: decisions
// that wait for the lists of all resources also wait for Discovered.
func (g *Graph) Discovering() { g.unlisted++ }

// Discovered ends Discovering.
func (g *Graph) Discovered() {
	g.unlisted--
	g.requeueParked()
}

// Complete reports whether all resources are known and every watched one was listed or given up
// on.
func (g *Graph) Complete() bool { return g.unlisted == 0 }

// Replace takes the complete list of a resource's objects at resourceVersion.
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
	r.latest = resourceVersion
	g.change(r, func() { r.listed, r.givenUp = true, false })
	g.retryUnverified(r.groupKind())
}

// reconcileList handles the observed nodes of r that are missing from a list at version.
func (g *Graph) reconcileList(r *resource, listed map[*node]struct{}, version string) {
	for _, n := range g.nodes {
		if _, ok := listed[n]; ok || !n.is(observed) || n.resource != r {
			continue
		}
		switch order, err := resourceversion.CompareResourceVersion(n.version, version); {
		case err != nil:
			// The list may be older than the node: look owners up.
			g.makeVirtual(n)
		case order <= 0:
			g.makeTombstone(n)
		}
	}
}

// change runs f, which changes r, and updates the count of unlisted resources.
func (g *Graph) change(r *resource, f func()) {
	if r.awaitsList() {
		g.unlisted--
	}
	f()
	if r.awaitsList() {
		g.unlisted++
	}
	g.requeueParked()
}

// requeueParked requeues the parked nodes once every resource is listed.
func (g *Graph) requeueParked() {
	if g.unlisted > 0 {
		return
	}
	requeue := g.parked
	g.parked = nil
	for _, n := range requeue {
		n.state &^= parked
		g.enqueue(n)
	}
}

// park postpones the decision about n until every resource is listed.
func (g *Graph) park(n *node) {
	if !n.is(parked) {
		n.state |= parked
		g.parked = append(g.parked, n)
	}
}

// retryUnverified requeues the dependents of a kind's unverified owners without a lookup result,
// after the kind was listed or its serving changed. It visits all unverified owners; they are few,
// because observed owners are not among them.
func (g *Graph) retryUnverified(gk schema.GroupKind) {
	for _, u := range g.unverified {
		if u.GroupKind == gk && (u.existence == unknown || u.existence == lookupFailed) {
			u.existence = unknown
			g.enqueueDependents(u.owner)
		}
	}
}
