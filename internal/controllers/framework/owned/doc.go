// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owned finds the children of an owner, whatever their kind: it lists them,
// decides which of them belong to the owner, and shows a controller its own writes
// before the informer cache does.
//
// A Reconcile uses the three parts in this order, by way of Children (children.go):
//
//	list     by controller UID, from an index of the shared cache       (index.go)
//	overlay  what this process wrote and the cache does not have yet    (ledger.go)
//	claim    adopt matching orphans, release children that don't match  (refmanager.go)
//
// The result belongs to the owner and is as fresh as the controller's last write, so
// the rest of the Reconcile needs no expectations and never waits.
//
// Controllers skip an owner that is on hold (fetch.go).
package owned
