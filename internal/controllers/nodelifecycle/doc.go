// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle is the node controller: it notices that a node's agent
// has fallen silent, says so in the node's status and taints, and evicts pods from
// nodes with NoExecute taints.
//
// # Nodes
//
// An agent renews its Lease in kube-node-lease every few seconds and its node's
// status less often; either is a sign of life. What counts is when the controller
// saw the sign change, by its own clock: nobody's clocks are compared. A node
// without a sign for the grace period gets its conditions set to Unknown, after a
// live look at the Lease has shown that the cache is not the one that is behind.
//
// Conditions become taints. NoSchedule taints follow at once. A NoExecute taint
// costs pods, so it is rationed: a zone gets one in ten seconds, a zone in which
// most nodes are lost fewer or none, and when no node of the cluster is ready
// there is none at all and those that exist are taken off, because then it is
// more likely the control plane that is cut off than all the nodes.
//
// # Pods
//
// A pod on a lost node is marked not ready. A pod that does not tolerate all
// NoExecute taints of its node is deleted; one that tolerates them for a time, when
// the time is over. The decision is taken in one reconcile of the pod, woken by
// the pod, by its node and by the clock.
package nodelifecycle
