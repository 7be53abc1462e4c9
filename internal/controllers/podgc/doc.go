// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgc deletes pods that no other component deletes: surplus ended pods, pods whose
// node is deleted or out of service, and terminating pods that were never bound.
//
// A Reconcile checks all pods and nodes. A pure function decides which pods to delete and why
// (garbage.go); the controller deletes them. It runs periodically, and when a node is deleted
// or declared out of service.
package podgc
