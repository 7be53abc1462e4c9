// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move moves a graph of objects to another cluster: the named roots and all their
// dependents. It is a client of two API servers. Neither has to be Kindred, and nothing needs
// to be installed in them.
//
// # Phases
//
//  1. Plan. List the metadata of every kind at the source and follow owner references by UID
//     from the roots ([Assemble]). What cannot be moved safely is a problem; a plan with
//     problems is not carried out.
//  2. Copy. Pause objects of Cluster API at the source (pause.go). Create the objects, owners
//     before dependents: paused, if their kind can be paused
//     (hold.go), with every UID of the graph replaced by the new one, and with a mark that
//     names the move and the original (marks.go). Then read the source again, until
//     everything there is copied.
//  3. Verify. Read each copy back and compare it with what was sent. Then record that in a
//     ConfigMap at the target, the anchor (anchor.go). Until here nothing was written at the
//     source but pauses.
//  4. Remove. Delete the originals, owners first and with the policy Orphan, so that no
//     controller recreates removed objects and no garbage collector deletes objects that were
//     not copied. Each deletion has the UID and resourceVersion of a state whose content was
//     copied as preconditions.
//  5. Release. Remove holds and marks at the target, and finally the anchor.
//
// # Interruption
//
// All progress is stored in the marks and the anchor. Without an anchor, the next run copies
// again and finds the existing copies. With an anchor, and a root that the source no longer
// has, the marks say what to remove and release.
package move
