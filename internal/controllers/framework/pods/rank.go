// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Victims returns the n pods to delete first when scaling down. The order is the documented
// one (ReplicaSet, "Scaling down"); each rule decides between pods that are equal by all
// rules before it:
//
//  1. not yet on a node before on a node
//  2. pending before unknown before running
//  3. not ready before ready
//  4. lower controller.kubernetes.io/pod-deletion-cost first
//  5. more related pods on the same node first ("doubled up")
//  6. ready for a shorter time first
//  7. more container restarts first, then more sidecar restarts
//  8. younger before older
//
// Ages are compared by their logarithm, so that among pods of about the same age the
// youngest is not always deleted first. UIDs break ties: they are random, but stable.
//
// Related are the pods that count for rule 5: those of all ReplicaSets of the same owner.
// Neither slice is modified.
func Victims(candidates, related []*corev1.Pod, n int, now time.Time) []*corev1.Pod {
	if n >= len(candidates) {
		return candidates
	}
	onNode := map[string]int{}
	for _, pod := range related {
		if IsActive(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	ranked := slices.Clone(candidates)
	slices.SortStableFunc(ranked, func(a, b *corev1.Pod) int { return compareVictims(a, b, onNode, now) })
	return ranked[:n]
}

func compareVictims(a, b *corev1.Pod, onNode map[string]int, now time.Time) int {
	return cmp.Or(
		falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseOrder(a), phaseOrder(b)),
		falseFirst(IsReady(a), IsReady(b)),
		cmp.Compare(DeletionCost(a), DeletionCost(b)),
		cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]),
		compareAges(readySince(a), readySince(b), now),
		compareRestarts(a, b),
		compareAges(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
		cmp.Compare(a.UID, b.UID),
	)
}

// DeletionCost returns the value of controller.kubernetes.io/pod-deletion-cost, or 0 if it
// is missing or not an int32 in canonical form ("+1" and "01" are not).
func DeletionCost(pod *corev1.Pod) int32 {
	value := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(value, 10, 32)
	if err != nil || value[0] == '+' || (value[0] == '0' && value != "0") {
		return 0
	}
	return int32(cost)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func phaseOrder(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodUnknown:
		return 1
	case corev1.PodRunning:
		return 2
	default:
		return 0
	}
}

// compareAges orders an unknown time first, then the younger bucket.
func compareAges(a, b, now time.Time) int {
	if a.IsZero() || b.IsZero() {
		return falseFirst(!a.IsZero(), !b.IsZero())
	}
	return cmp.Compare(ageBucket(a, now), ageBucket(b, now))
}

func ageBucket(t, now time.Time) int64 {
	age := now.Sub(t)
	if age <= 0 {
		return -1
	}
	return int64(math.Log2(float64(age)))
}

func compareRestarts(a, b *corev1.Pod) int {
	appsA, sidecarsA := maxRestarts(a)
	appsB, sidecarsB := maxRestarts(b)
	return cmp.Or(cmp.Compare(appsB, appsA), cmp.Compare(sidecarsB, sidecarsA))
}

// maxRestarts returns the highest restart counts of an app container and of a sidecar (an
// init container that always restarts).
func maxRestarts(pod *corev1.Pod) (apps, sidecars int32) {
	for i := range pod.Status.ContainerStatuses {
		apps = max(apps, pod.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		for j := range pod.Status.InitContainerStatuses {
			if s := &pod.Status.InitContainerStatuses[j]; s.Name == c.Name {
				sidecars = max(sidecars, s.RestartCount)
			}
		}
	}
	return apps, sidecars
}
