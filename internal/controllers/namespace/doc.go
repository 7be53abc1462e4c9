// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace deletes the content of terminating namespaces, and then removes their
// finalizer.
//
// The API server keeps a deleted namespace in phase Terminating while its
// spec.finalizers is not empty. One Reconcile makes one pass over it:
//
//	discover  the namespaced resources; cached until a CRD changes (discovery.go)
//	delete    the content: first only pods, so that nothing they depend on is
//	          deleted before them (KEP-5080); then all other kinds (content.go)
//	report    what remains and why, as conditions (conditions.go, pure)
//	release   the finalizer, when nothing remains
//
// While content remains the pass is repeated: immediately when the last pod is removed,
// otherwise after a delay that grows from a few milliseconds.
//
// A request that was admitted just before the deletion may be stored just after the last
// pass. Upstream's controller delays every deletion for that; this one checks for such
// objects some seconds after the namespace was removed.
package namespace
