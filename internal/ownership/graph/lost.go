// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remember keeps the references in mind that n loses when refs become its own: those to
// owners that exist and stay. Backup tools take them away, and an object without them is
// left behind when its owner goes.
//
// It is no loss when the object gets another owner: an owner may be replaced by a more
// appropriate one. Neither is what the collector drops, as that is never a reference to an
// owner that stays. There is an entry only for objects that lost something.
func (g *Graph) remember(n *node, state nodeState, refs []metav1.OwnerReference) {
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
			lost = append(lost, g.reference(e))
		}
	}
	replaced := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		return !refersTo(n.edges, g.find(ref.UID)) && !names(lost, ref.UID)
	})
	lost = slices.DeleteFunc(lost, func(ref metav1.OwnerReference) bool {
		return names(refs, ref.UID) || !g.stays(ref.UID)
	})
	if replaced || len(lost) == 0 {
		delete(g.lost, n.uid)
		return
	}
	g.lost[n.uid] = lost
}

// lostOf are the references that n has lost to owners that are still there.
func (g *Graph) lostOf(n *node) []metav1.OwnerReference {
	var lost []metav1.OwnerReference
	for _, ref := range g.lost[n.uid] {
		if g.stays(ref.UID) {
			lost = append(lost, ref)
		}
	}
	return lost
}

// stays tells whether an object exists and is not being deleted.
func (g *Graph) stays(id types.UID) bool {
	n := g.find(id)
	return n != nil && n.is(observed) && !n.is(deleting)
}

func names(refs []metav1.OwnerReference, id types.UID) bool {
	return slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == id })
}
