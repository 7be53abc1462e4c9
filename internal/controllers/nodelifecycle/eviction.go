// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// eviction is the effect of NoExecute taints on a pod.
type eviction int

const (
	noEviction eviction = iota // the pod tolerates all taints
	evictNow                   // the pod does not tolerate a taint
	evictLater                 // the pod tolerates the taints for a time
)

// evictionFor returns the effect of a node's taints on a pod with these tolerations, and how long
// the pod tolerates them. The first matching toleration of each taint counts, as in upstream's
// taint manager.
func evictionFor(log logr.Logger, taints []corev1.Taint, tolerations []corev1.Toleration) (e eviction, tolerated time.Duration) {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectNoExecute {
			continue
		}
		// Lt and Gt are alpha in v1.37 and off.
		at := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(log, &taints[i], false) })
		if at < 0 {
			return evictNow, 0
		}
		seconds := tolerations[at].TolerationSeconds
		if seconds == nil {
			continue
		}
		if *seconds <= 0 {
			return evictNow, 0
		}
		if d := time.Duration(*seconds) * time.Second; e == noEviction || d < tolerated {
			e, tolerated = evictLater, d
		}
	}
	return e, tolerated
}

// taintedSince returns when the tolerationSeconds of a pod began: when the newest taint was added, if
// known, but not before the pod was bound. It is called once for each pod, so that replacing
// a taint does not restart the time.
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
