// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owned is what every controller of children needs, whatever the kind
// of child: to find its children, to decide which are its own, and to see its
// own writes before the informer cache does.
//
// The three parts are used together, in this order, at the top of a Reconcile, which is
// what Children does (children.go):
//
//	list     by controller UID, from an index on the shared cache     (index.go)
//	overlay  what this process wrote and the cache has not shown yet  (ledger.go)
//	claim    adopt matching orphans, release what no longer matches   (claim.go)
//
// What is left belongs to the controller and is as fresh as its last write, so
// the rest of the Reconcile needs no expectations and never waits.
//
// An owner that is held (hold.go) is left alone before any of that.
package owned
