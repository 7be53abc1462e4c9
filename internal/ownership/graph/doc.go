// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graph is the state machine that decides what garbage collection does:
// observations go in, actions come out. It has no goroutine, no clock and does no
// I/O, so a test can drive it through any interleaving; package collector is the
// shell that gives it eyes and hands. A Graph is not safe for concurrent use.
//
// # Model
//
// Every object is a node, known by its UID. A node's edges are its
// metadata.ownerReferences; an owner lists the nodes whose edges point to it. Only
// metadata matters: who owns, which finalizers, is it being deleted.
//
// An owner that nothing but references tell of is a virtual node. An owner that
// was seen and then deleted stays as a tombstone for as long as something refers
// to it: a UID never comes back, so its references dangle for good.
//
// An edge is followed when the owner was seen and the reference names it rightly:
// same UID, group, kind and name, in the dependent's namespace or cluster-scoped.
// The version is not compared, because an object is the same in each of them.
// A reference that is not followed is a claim: the API has to be asked whether
// the object it names exists. Dependents with the same claim share the answer.
//
// # Rules
//
// References are solid (the owner exists), waiting (the owner exists, is being
// deleted and carries the finalizer foregroundDeletion), dangling (the owner is
// absent: gone, or not found under that name with that UID) or unresolved (its
// kind is not served, or a cluster-scoped object names a namespaced owner). Then,
// as https://kubernetes.io/docs/concepts/architecture/garbage-collection/ has it:
//
//   - one unresolved reference: the object is left alone;
//   - a solid one: the object stays, and its dangling and waiting references are
//     dropped, so that they hold up nobody;
//   - none solid: the object is deleted, in the foreground when an owner waits
//     and the object has dependents itself, else as its own finalizers ask, else
//     in the background;
//   - an owner waiting for its dependents loses the finalizer foregroundDeletion
//     when none is left that blocks it (blockOwnerDeletion);
//   - an owner with the finalizer orphan that is being deleted loses it when no
//     dependent refers to it any more; until then the references are dropped.
//
// Owners that wait for each other in a circle, and for nobody else, are released:
// there is no order to keep, and waiting would never end.
//
// # Preconditions
//
// A write names UID and resourceVersion of the state that it was decided from.
// Whoever adopts an object in the meantime makes the write fail, and the decision
// is taken again from what is there then.
//
// Finalizers are only taken away while every watched resource has been listed
// (or was given up on, see [Graph.GiveUp]): an owner whose dependents are not all
// known must neither go before them nor leave them behind.
package graph
