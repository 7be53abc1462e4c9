// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package undelete brings a deleted object back, with all that went because of it.
//
// What there was is read from the store's history: the graph of owners and dependents as it
// was just before the deletion of its root. What of it is still there is given its owner back,
// what is gone is created anew.
//
// # Phases
//
//  1. Read. The root's deletion is looked up (find.go), the graph at the revision before it is
//     read (graph.go), and of each object what there is today.
//  2. Judge. What becomes of each object is decided from that alone (judge.go). What cannot be
//     undone safely is a problem, and so is what the API would refuse (check.go): with problems
//     nothing is changed.
//  3. Restore. Owners before dependents (graph.go). Each object gets a new UID, every UID of
//     the graph that it mentions is replaced, and it is put on hold (restore.go, mark.go).
//  4. Release. Once the controllers have seen all of it, the holds are taken off, dependents
//     before owners (release.go).
//
// # Interruption
//
// All that is remembered is in the marks, which are the values of the holds. Whoever asks again
// goes on where the marks say. What exists under the name of a member and has neither its UID
// nor its mark was made by somebody else who was faster: it stays, and takes the member's place.
package undelete
