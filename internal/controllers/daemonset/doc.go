// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemonset keeps one pod of a DaemonSet on every node that is fit for it.
//
// A Reconcile reads the DaemonSet, the nodes and its pods, sorts the pods by the node
// they are on or bound for, and decides node by node what should be created and deleted
// there; the rolling update adds what its limits allow. Pods are not put on their node
// but made for it: a node affinity names the node, and the scheduler binds the pod, so
// that resources, priorities and preemption hold for it as for any other.
//
//	read      pods and revisions by owner, claimed             (packages owned, revisions)
//	judge     which nodes may get a pod, and which may keep it (fitness.go, pure)
//	decide    what to create and to delete: upkeep, rollout    (plan.go, rollout.go, pure)
//	act       create in slow start, delete at once             (controller.go)
//	report    counts                                           (status.go, pure)
//
// A pod belongs to the revision whose hash it is labelled with (history.go).
package daemonset
