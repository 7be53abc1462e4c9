// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revisions keeps the history of a pod template as ControllerRevisions: one for
// each state that the template had, numbered in the order of their use.
//
// A revision holds a patch that restores its owner's template; kubectl rollout history and
// undo read it. A state is identified by this data, so that a rollback creates no new
// revision: the old one gets the highest number (Current). Each revision has a hash, in
// its name and in a label; the controller labels the pods of the revision with it
// (Keeper.Hash).
//
//	read      an owner's revisions, claimed by the ControllerRef rules   (Keeper.List)
//	decide    which of them is the current state, and its number         (Split, Keeper.Current)
//	trim      delete the oldest unused revisions                         (Keeper.Trim)
package revisions
