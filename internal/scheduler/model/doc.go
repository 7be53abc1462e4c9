// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is the scheduler's view of the cluster: nodes with their allocatable and requested
// resources, and the pods on them, each parsed once.
//
// A [Cluster] belongs to one goroutine, which applies all changes and makes all decisions. So it
// has no locks and no snapshots: a decision reads the state itself, and a pod that it places is
// added to the node at once, before the API knows. Only preemption copies, one node at a time.
//
// A [Pod] is immutable, so it may be created in any goroutine.
package model
