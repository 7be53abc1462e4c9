// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset keeps as many pods alive as a ReplicaSet or a
// ReplicationController asks for.
//
// A ReplicationController is a ReplicaSet from before there were selectors by
// expression. One reconciler serves both: it reads and writes objects of its kind,
// and decides from their view as a ReplicaSet (kind.go). What is a kind's own stands
// in its file (replicaset.go, replicationcontroller.go); each kind has a controller,
// an identity and a queue of its own.
//
// One Reconcile reads the object and its pods, decides how many are missing or too
// many, creates or deletes that many, and writes what it saw to status:
//
//	read      its pods: by owner, plus orphans that match      (package owned)
//	decide    missing = spec.replicas - active pods; who dies  (pods.Victims)
//	act       create in slow start, delete at once             (package pods)
//	report    counts and the ReplicaFailure condition          (status.go)
//
// Two objects with overlapping selectors do not fight, of whatever kind they are: a
// pod counts only for the one that its controller reference names.
package replicaset
