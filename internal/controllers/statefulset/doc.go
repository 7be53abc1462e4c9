// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulset gives each pod of a StatefulSet a stable name and stable storage, and
// creates, deletes and updates the pods in the order that the StatefulSet asks for.
//
// A Reconcile reads the pods and the claims, places the pods by their ordinals, and decides
// what to do:
//
//	read      pods and revisions by owner, claimed             (packages owned, revisions)
//	place     pods by ordinal, claims by name                  (view.go, identity.go, pure)
//	decide    upkeep, scale-down, then the rolling update      (plan.go, rollout.go, pure)
//	act       claims before pods; create, repair, delete       (act.go)
//	report    counts and revisions                             (status.go, pure)
//
// An OrderedReady StatefulSet stops deciding at the first pod that is not available, so that
// at most one pod is created or deleted by scaling at a time. A Parallel one does not wait.
//
// A pod belongs to the revision that its label controller-revision-hash names (history.go).
// Owner references of the claims implement persistentVolumeClaimRetentionPolicy (KEP-1847,
// retention.go): the garbage collector deletes a claim with the StatefulSet or with the pod.
package statefulset
