// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package job runs the pods of Jobs to completion, and deletes finished Jobs after
// ttlSecondsAfterFinished.
//
// Each ended pod is counted exactly once, even if the process crashes (KEP-2307). The pod
// has the finalizer batch.kubernetes.io/job-tracking until it is counted, in three writes:
//
//	record  add its UID to status.uncountedTerminatedPods  (or its index to status.completedIndexes)
//	release remove the finalizer from the pod
//	count   remove the UID from the list and increment the counter
//
// If a Reconcile finds a UID in the list, the finalizer shows which write is next. All decisions
// are functions of what one Reconcile has read:
//
//	read    the Job and its pods: owner, adoption, release  (package owned)
//	observe active, newly ended and counted pods            (observe.go)
//	end     whether the Job has succeeded or failed, and why (end.go, policies.go)
//	plan    which pods to create, delete or wait for        (plan.go, backoff.go)
//	account the status before and after finalizers are removed (account.go)
//
// A second queue (release.go) removes the finalizer from pods whose Job is finished or
// deleted, which would otherwise block their deletion.
package job
