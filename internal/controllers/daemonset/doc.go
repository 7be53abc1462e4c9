// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemonset keeps one pod of a DaemonSet on every node that fits.
//
// A Reconcile reads the DaemonSet, the nodes and the pods, groups the pods by the node that
// they are on or created for, and decides for each node which pods to create and delete; the
// rolling update adds what its limits allow. A node affinity names a pod's node, and the
// scheduler binds the pod, so that resources, priorities and preemption apply to it as to
// any other pod.
//
//	read      pods and revisions by owner, claimed             (packages owned, revisions)
//	fit       which nodes may get a pod, and which may keep it (fitness.go, pure)
//	decide    what to create and to delete: upkeep, rollout    (plan.go, rollout.go, pure)
//	act       create with slow start, delete in parallel       (controller.go)
//	report    counts                                           (status.go, pure)
//
// A pod belongs to the revision whose hash is in its label (history.go).
package daemonset
