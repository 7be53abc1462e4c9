// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graph is the state machine that decides what garbage collection does:
// observations go in, actions come out. It has no goroutines, no clock and no I/O, so
// that tests can drive it through any interleaving. Package collector feeds it from
// watches and performs its actions. A Graph is not safe for concurrent use.
//
// # Model
//
// Every object is a node, identified by its UID. A node's edges are its
// metadata.ownerReferences; an owner lists the nodes whose edges point to it. The graph
// uses only metadata: owner references, finalizers and the deletion timestamp.
//
// An owner that was never observed, only referred to, is a virtual node. An owner that
// was observed and then deleted stays as a tombstone while any edge refers to it: UIDs
// are never reused, so references to it dangle permanently.
//
// An edge is followed if the owner was observed and the reference names it correctly:
// same UID, group, kind and name, in the dependent's namespace or cluster-scoped. The
// version is not compared, because every version of a kind serves the same object. An
// owner in other references is unverified: only a live lookup shows whether it exists.
// Equal references from one namespace share a lookup.
//
// # Rules
//
// The standing of a reference is solid (the owner exists), waiting (the owner exists, is
// being deleted and has the finalizer foregroundDeletion), dangling (the owner is absent:
// deleted, or not found with that name and UID) or unresolved (its kind is not served, or
// a cluster-scoped object names a namespaced owner). The rules are those of
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/:
//
//   - If any reference is unresolved, the object is left alone.
//   - If any reference is solid, the object stays. Its dangling and waiting references
//     are removed, so that it does not block their owners.
//   - If no reference is solid, the object is deleted: in the foreground if an owner
//     waits and the object has dependents itself, else as its own finalizers ask, else
//     in the background.
//   - An owner that waits for its dependents loses the finalizer foregroundDeletion when
//     no dependent with blockOwnerDeletion is left.
//   - An owner that is being deleted with the finalizer orphan has its dependents'
//     references removed, and loses the finalizer when none is left.
//
// Owners that wait only for each other, in a cycle, are released: no order among them is
// right, and they would wait forever.
//
// # Preconditions
//
// A write carries the UID and resourceVersion of the state that it was decided from. If a
// client adopts the object in the meantime, the write fails, and the graph decides again
// from the new state.
//
// Finalizers are removed only when every watched resource has been listed or given up on
// (see [Graph.GiveUp]). Until then an owner may have unknown dependents, which must not
// outlive it or lose it.
package graph
