// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset keeps spec.replicas pods of a ReplicaSet or a ReplicationController
// running.
//
// A ReplicationController is the predecessor of a ReplicaSet, without set-based selectors.
// One reconciler serves both: it reads and writes objects of either kind, and decides from
// their view as a ReplicaSet (kind.go). The differences are in replicaset.go and
// replicationcontroller.go. Each kind has its own controller, identity and queue.
//
// One Reconcile reads the object and its pods, creates missing pods or deletes surplus
// ones, and writes the status:
//
//	read      the pods of the object, and matching orphans        (package owned)
//	decide    how many are missing, and which to delete           (pods.Victims)
//	act       create with slow start, delete in parallel          (package pods)
//	report    counts and the ReplicaFailure condition             (status.go)
//
// Objects with overlapping selectors do not interfere: a pod counts only for the object
// that its controller reference names.
package replicaset
