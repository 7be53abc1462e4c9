// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// verdict is what NoExecute taints mean for a pod.
type verdict int

const (
	stay      verdict = iota // it tolerates them, or there are none
	leaveNow                 // it does not tolerate one of them
	leaveSoon                // it tolerates them for a time
)

// judge says what the taints of its node mean for a pod with these tolerations,
// and how long it is tolerated. For each taint the first toleration that matches
// counts, as in upstream's taint manager.
func judge(log logr.Logger, taints []corev1.Taint, tolerations []corev1.Toleration) (v verdict, tolerated time.Duration) {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectNoExecute {
			continue
		}
		// Lt and Gt are alpha in v1.37 and off.
		at := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(log, &taints[i], false) })
		if at < 0 {
			return leaveNow, 0
		}
		seconds := tolerations[at].TolerationSeconds
		if seconds == nil {
			continue
		}
		if *seconds <= 0 {
			return leaveNow, 0
		}
		if d := time.Duration(*seconds) * time.Second; v == stay || d < tolerated {
			v, tolerated = leaveSoon, d
		}
	}
	return v, tolerated
}

// taintedSince is when a pod's time on its node began to run: when the newest of
// the taints was added, as far as that is known, but not before the pod was there.
// It is asked for once a pod, so that one taint in the place of another does not
// set the time back.
func taintedSince(node *corev1.Node, pod *corev1.Pod, now time.Time) time.Time {
	since := pod.CreationTimestamp.Time
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		switch {
		case t.Effect != corev1.TaintEffectNoExecute:
		case t.TimeAdded == nil:
			return now
		case t.TimeAdded.After(since):
			since = t.TimeAdded.Time
		}
	}
	if since.After(now) {
		return now
	}
	return since
}
