// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// firstDelay is how long a failed pod is not replaced; it doubles with each
	// failure in a row, up to maxDelay.
	firstDelay = 10 * time.Second
	maxDelay   = 10 * time.Minute
)

// backoff is what delays the next pod of a Job: how many have failed since one
// succeeded, and when the last did.
type backoff struct {
	failures int
	last     time.Time
}

// after returns the backoff once these pods have ended too. A success forgives the
// failures before it.
func (b backoff) after(succeeded, failed []*corev1.Pod) backoff {
	var forgiven time.Time
	if len(succeeded) > 0 {
		b = backoff{}
		for _, pod := range succeeded {
			forgiven = later(forgiven, endedAt(pod))
		}
	}
	for _, pod := range failed {
		if at := endedAt(pod); at.After(forgiven) || len(succeeded) == 0 {
			b = backoff{b.failures + 1, later(b.last, at)}
		}
	}
	return b
}

// remaining is how long to wait before the next pod.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	delay := firstDelay
	for i := 1; i < b.failures && delay < maxDelay; i++ {
		delay *= 2
	}
	return max(0, min(delay, maxDelay)-now.Sub(b.last))
}

// indexBackoff is the backoff of one index, whose last pod is given: it is kept in
// annotations, so that it outlives the controller.
func indexBackoff(last *corev1.Pod) backoff {
	if last == nil {
		return backoff{}
	}
	_, before := indexFailures(last)
	return backoff{before + 1, endedAt(last)}
}

// endedAt is when the pod ended: when its last container did; else since when it is
// not ready (a node agent says so of a pod that has ended); else when it was asked to
// stop, for a pod without a node; else when it was made.
func endedAt(pod *corev1.Pod) time.Time {
	if at := containersEndedAt(pod); !at.IsZero() {
		return at
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	if pod.DeletionTimestamp != nil {
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		return pod.DeletionTimestamp.Add(-grace)
	}
	return pod.CreationTimestamp.Time
}

// containersEndedAt is when the last container ended, sidecars included: they outlive
// the others. It is zero if one has not.
func containersEndedAt(pod *corev1.Pod) time.Time {
	sidecar := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar[c.Name] = ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	}
	statuses := pod.Status.ContainerStatuses
	for _, status := range pod.Status.InitContainerStatuses {
		if sidecar[status.Name] {
			statuses = append(statuses[:len(statuses):len(statuses)], status)
		}
	}
	var at time.Time
	for i := range statuses {
		ended := statuses[i].State.Terminated
		if ended == nil || ended.FinishedAt.IsZero() {
			return time.Time{}
		}
		at = later(at, ended.FinishedAt.Time)
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
