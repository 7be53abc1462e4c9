// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HoldAnnotation holds Kindred's controllers off an object: as long as it is there, with
// whatever value, no controller creates, deletes, adopts or releases anything for the object,
// or writes its status. It counts on what a controller works for: Deployments, ReplicaSets,
// ReplicationControllers, DaemonSets, Jobs (they do not expire either, and their pods keep
// the finalizer by which they are counted), Services (their endpoints stay as they are), and
// pods, as far as they would be cleaned up. It is never handed on to what an object owns.
//
// It is for a graph of objects that is brought back one by one: what is not there yet must
// not be made anew. Who brings it back creates its objects with the annotation, and takes it
// away once they are whole; controllers then go on at once. One that was left behind is
// taken away by hand:
//
//	kubectl annotate deployment/web ownership.kindred.dev/hold-
//
// Deletions do not care for it: the object can be deleted, is collected with its owners, and
// is no longer held as soon as its deletion has begun.
const HoldAnnotation = "ownership.kindred.dev/hold"
