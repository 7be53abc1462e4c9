// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noteLost records the references to live owners that n loses when an update changes its state and
// replaces its owner references by refs. Call it before the update. Backup tools remove references,
// and an object without them is left behind when its owner is deleted.
//
// A reference is not lost if the object gets a new owner: clients replace owners by more
// appropriate ones. The collector's own writes lose nothing, because they never remove
// references to live owners. Only objects that lost a reference have an entry in g.lost.
func (g *Graph) noteLost(n *node, state nodeState, refs []metav1.OwnerReference) {
	lost := slices.Clip(g.lost[n.uid])
	switch {
	case len(n.edges) == 0 && len(lost) == 0:
		return
	case state&deleting != 0:
		delete(g.lost, n.uid)
		return
	}
	for i := range n.edges {
		if e := &n.edges[i]; e.is(followed) {
			lost = append(lost, g.ownerReference(e))
		}
	}
	replaced := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		return !refersTo(n.edges, g.find(ref.UID)) && !containsUID(lost, ref.UID)
	})
	lost = slices.DeleteFunc(lost, func(ref metav1.OwnerReference) bool {
		return containsUID(refs, ref.UID) || !g.isLive(ref.UID)
	})
	if replaced || len(lost) == 0 {
		delete(g.lost, n.uid)
		return
	}
	g.lost[n.uid] = lost
}

// lostOf returns the references that n has lost and whose owners are still live.
func (g *Graph) lostOf(n *node) []metav1.OwnerReference {
	var lost []metav1.OwnerReference
	for _, ref := range g.lost[n.uid] {
		if g.isLive(ref.UID) {
			lost = append(lost, ref)
		}
	}
	return lost
}

// isLive reports whether an object exists and is not being deleted.
func (g *Graph) isLive(id types.UID) bool {
	n := g.find(id)
	return n != nil && n.is(observed) && !n.is(deleting)
}

func containsUID(refs []metav1.OwnerReference, id types.UID) bool {
	return slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == id })
}
