// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset keeps as many pods alive as a ReplicaSet asks for.
//
// One Reconcile reads the ReplicaSet and its pods, decides how many are missing
// or too many, creates or deletes that many, and writes what it saw to status:
//
//	read      its pods: by owner, plus orphans that match      (package owned)
//	decide    missing = spec.replicas - active pods; who dies  (pods.Victims)
//	act       create in slow start, delete at once             (package pods)
//	report    counts and the ReplicaFailure condition          (status.go)
//
// Two ReplicaSets with overlapping selectors do not fight: a pod counts only
// for the one that its controller reference names.
package replicaset
