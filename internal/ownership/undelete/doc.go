// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package undelete restores a deleted object and the objects that were deleted because of it.
//
// It reads the graph of owners and dependents from the store's history, as it was just before the
// deletion of its root. Objects of the graph that still exist get their owner references back;
// the others are created again.
//
// # Phases
//
//  1. Read. Look up the deletion of the root (find.go), and read the graph at the revision before
//     it and the current objects with the same names (graph.go).
//  2. Decide. The outcome of each object depends on these states alone (outcome.go). What
//     cannot be undone safely, or would be rejected by the API (check.go), is a problem. If there
//     are problems, nothing is changed.
//  3. Restore. Create the objects, owners before dependents, on hold (restore.go, mark.go). Each
//     gets a new UID, and every old UID of the graph in its fields is replaced.
//  4. Release. When the controllers' caches have all objects, remove the holds, dependents before
//     owners (release.go).
//
// # Interruption
//
// All progress is stored in the marks, which are the values of the holds. A repeated request
// continues from the marks. If an object has the name of a member of the graph, but neither its
// UID nor its mark, another client has created it in the meantime: it stays and takes the
// member's place.
package undelete
