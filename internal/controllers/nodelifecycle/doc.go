// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle is the node controller. It detects nodes without heartbeats, updates
// their status and taints, and evicts pods from nodes with NoExecute taints.
//
// # Nodes
//
// An agent renews its Lease in kube-node-lease every few seconds, and its node's status less
// often; both are heartbeats. The controller uses the time at which it saw the heartbeat
// change, so that clocks of different machines are never compared. If a node has no heartbeat
// for the grace period, and the Lease in the API confirms that the cache is not stale, its
// conditions are set to Unknown.
//
// Conditions become taints. NoSchedule taints are added immediately. NoExecute taints evict
// pods, so they are rate-limited: one in ten seconds for each zone, and fewer or none in a
// zone in which most nodes are not ready. If no node of the cluster is ready, there are none
// and existing ones are removed, since then the control plane is more likely to be
// disconnected than all nodes.
//
// # Pods
//
// A pod on a lost node is marked not ready. A pod that does not tolerate all NoExecute taints
// of its node is deleted, immediately or after its tolerationSeconds. One reconcile of the pod
// decides this, woken by the pod, by its node and by a timer.
package nodelifecycle
