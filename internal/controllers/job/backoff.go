// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// minDelay is the time for which a failed pod is not replaced. It doubles with each
	// consecutive failure, up to maxDelay.
	minDelay = 10 * time.Second
	maxDelay = 10 * time.Minute
)

// backoff delays the next pod of a Job: it counts the failures since the last success, and has
// the time of the last one.
type backoff struct {
	failures int
	last     time.Time
}

// after returns the backoff after more pods have ended. A success resets the failures.
func (b backoff) after(succeeded, failed []*corev1.Pod) backoff {
	var lastSuccess time.Time
	if len(succeeded) > 0 {
		b = backoff{}
		for _, pod := range succeeded {
			lastSuccess = latest(lastSuccess, endedAt(pod))
		}
	}
	for _, pod := range failed {
		if at := endedAt(pod); at.After(lastSuccess) || len(succeeded) == 0 {
			b = backoff{b.failures + 1, latest(b.last, at)}
		}
	}
	return b
}

// remaining returns how long to wait before the next pod.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	delay := minDelay
	for i := 1; i < b.failures && delay < maxDelay; i++ {
		delay *= 2
	}
	return max(0, min(delay, maxDelay)-now.Sub(b.last))
}

// indexBackoff returns the backoff of an index from the annotations of its last pod.
func indexBackoff(last *corev1.Pod) backoff {
	if last == nil {
		return backoff{}
	}
	_, before := indexFailures(last)
	return backoff{before + 1, endedAt(last)}
}

// endedAt returns when the pod ended: when its last container did; else when it became unready
// (a node agent sets that for an ended pod); else when it was deleted, for a pod without a
// node; else when it was created.
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

// containersEndedAt returns when the last container ended, including sidecars, which end last. It
// is zero if a container has not ended.
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
		at = latest(at, ended.FinishedAt.Time)
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
