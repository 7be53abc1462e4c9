// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace empties namespaces that are being deleted, and then lets
// them go.
//
// The API server keeps a deleted namespace in phase Terminating while its
// spec.finalizers is not empty. One Reconcile makes one pass over it:
//
//	discover  which kinds live in namespaces; kept, but not across a change of
//	          CRDs (discovery.go)
//	delete    what is there: pods first and alone, so that nothing they rely on
//	          goes before them (KEP-5080); then all other kinds (content.go)
//	report    what remains and why, as conditions (conditions.go, pure)
//	release   the finalizer, once nothing remains
//
// While something remains the pass is repeated: at once when the last pod has
// gone, else after a delay that grows from a few milliseconds.
//
// A request that was admitted just before the deletion may still be stored just
// after the last pass. Instead of making every deletion wait for that, as the
// classic controller does, a last look is taken some seconds after the
// namespace has gone.
package namespace
