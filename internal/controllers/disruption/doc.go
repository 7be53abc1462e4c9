// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disruption keeps the status of PodDisruptionBudgets, by which the eviction API and the
// scheduler's preemption decide which pods they may take.
//
// A Reconcile reads the pods that a budget selects and the scale of their owners (scale.go), and
// computes the status (status.go, pure). If it cannot, it writes that no disruption is allowed.
//
// The eviction API subtracts each eviction from the status and records the pod in
// status.disruptedPods. Such a pod does not count as healthy until the cache has its deletion, but
// two minutes at most.
//
// A second queue (stale.go) resets the condition DisruptionTarget of pods that were not deleted.
package disruption
