// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revisions keeps the history of an object whose pods a controller replaces
// when their template changes: one ControllerRevision for each state the template ever
// had, numbered in the order of their use.
//
// What a revision holds is a patch that takes its owner back to that state; kubectl
// rollout history and undo read it. A state is known by its data alone, so that to go
// back to an earlier one makes no new revision: the old one gets the highest number
// (Current). Each revision has a hash, in its name and in a label, with which the
// controller labels the pods that it makes (Keeper.Hash).
//
//	read      an owner's revisions, claimed by the ControllerRef rules   (Keeper.List)
//	decide    which of them is the present state, and its number         (Split, Keeper.Current)
//	trim      the oldest that nobody needs any more                      (Keeper.Trim)
package revisions
