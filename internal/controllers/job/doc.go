// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job runs the pods of Jobs to their end, and deletes finished Jobs whose time
// to live is over.
//
// Each pod that ends is counted exactly once, whatever crashes in between (KEP-2307).
// The pod carries the finalizer batch.kubernetes.io/job-tracking until it is counted,
// and the Job's status names it while the two writes differ:
//
//	note    its UID joins status.uncountedTerminatedPods   (or its index status.completedIndexes)
//	release the finalizer leaves the pod
//	count   the UID leaves the list, the counter goes up
//
// A pass that finds a UID in the list knows by the finalizer which of the writes is
// next. All decisions are functions of what one pass has read:
//
//	read    the Job and its pods: owner, adoption, release  (package owned)
//	observe what is active, new among the ended, counted    (observe.go)
//	judge   whether the Job has succeeded or failed, and why (verdict.go, policies.go)
//	plan    which pods to create, delete or wait for        (plan.go, backoff.go)
//	account the status before and after finalizers go       (account.go)
//
// Pods whose Job is finished or gone lose the finalizer to a queue of its own
// (release.go), or nobody could ever delete them.
package job
