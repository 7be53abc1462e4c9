// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/preemption"
)

// preemptFor evicts the pods that a refused pod preempts, and returns why the pod is still refused, or nil. Pods that are
// evicted already do not count: what they hold gets free, and they cannot be evicted twice.
func (t *table) preemptFor(p *v1.Pod, refused *pod.Refusal) *pod.Refusal {
	others := slices.DeleteFunc(t.active(), func(other *v1.Pod) bool {
		evicted, _ := t.workers[other.UID].IsEvicted()
		return evicted || other.UID == p.UID
	})
	victims, refused := t.preempt(t.ctx, p, others, refused)
	for _, victim := range victims {
		klog.FromContext(t.ctx).Info("Preempting a pod", "pod", klog.KObj(victim), "for", klog.KObj(p))
		t.parts.Recorder.Event(pod.Reference(victim), v1.EventTypeWarning, preemption.Reason, preemption.Message)
		t.evict(victim.UID, preempted(victim))
	}
	return refused
}

// preemptLate evicts the pods that those preempt which were admitted before all pods of the node were known. If an agent
// ended between the admission of a critical pod and an eviction for it, the next one may see the critical pod first.
func (t *table) preemptLate() {
	for _, uid := range t.early {
		w := t.workers[uid]
		if w == nil || t.preempt == nil {
			continue
		}
		p := w.Pod()
		others := slices.DeleteFunc(t.active(), func(other *v1.Pod) bool { return other.UID == uid })
		refused := t.admit(t.ctx, p, others)
		if refused == nil {
			continue
		}
		if refused = t.preemptFor(p, refused); refused != nil {
			klog.FromContext(t.ctx).Info("A static pod runs although the node is full", "pod", klog.KObj(p), "reason", refused.Message)
		}
	}
	t.early = nil
}

// preempted returns the eviction of a preempted pod, which has its own grace period.
func preempted(victim *v1.Pod) pod.Eviction {
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if own := victim.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = *own
	}
	return pod.Eviction{
		Refusal:      pod.Refusal{Reason: preemption.Reason, Message: preemption.Message},
		GraceSeconds: grace, Disrupts: true, ConditionMessage: preemption.ConditionMessage,
	}
}
