// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/assign"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/preemption"
)

// admit returns why the node does not admit a pod beside others, or nil. preempt counts the refusals.
func (a *Agent) admit(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	if refusal := a.earlyRefusal(ctx, p); refusal != nil {
		return refusal
	}
	if refusal := admission.CheckAppArmor(p, a.registration.reporter.machine.appArmor); refusal != nil {
		return refusal
	}
	node := a.assigned.Allocatable(a.registration.current())
	return admission.Check(klog.FromContext(ctx), node, p, admission.LoadOf(others), a.options.Config.AllowedUnsafeSysctls...)
}

// preempt returns the pods that a new pod preempts, or why it is refused. Only a critical pod preempts others, and only if it
// is refused for nothing but resources. As the kubelet, it says of others first why else the pod is refused.
func (a *Agent) preempt(ctx context.Context, p *v1.Pod, others []*v1.Pod, refused *pod.Refusal) ([]*v1.Pod, *pod.Refusal) {
	victims, signal, refused := a.victims(ctx, p, others, refused)
	if refused != nil {
		a.metrics.Rejected(refused.Reason)
		return nil, refused
	}
	for range victims {
		a.metrics.Preempted(signal)
	}
	return victims, nil
}

func (a *Agent) victims(ctx context.Context, p *v1.Pod, others []*v1.Pod, refused *pod.Refusal) ([]*v1.Pod, string, *pod.Refusal) {
	if !eviction.IsCritical(p) || !admission.IsShort(refused) {
		return nil, "", refused
	}
	node := a.assigned.Allocatable(a.registration.current())
	short, other := admission.CheckCritical(klog.FromContext(ctx), node, p, admission.LoadOf(others), a.options.Config.AllowedUnsafeSysctls...)
	if other != nil {
		return nil, "", other
	}
	if len(short) == 0 {
		return nil, "", nil // what evicted pods hold is enough
	}
	victims, refused := preemption.Victims(p, others, short)
	return victims, string(short[0].Name), refused
}

// earlyRefusal returns why the node does not admit a pod, whatever it requests, or nil. As in the kubelet, plugins do not
// allocate devices for such a pod.
func (a *Agent) earlyRefusal(ctx context.Context, p *v1.Pod) *pod.Refusal {
	if refusal := a.shutdown.Refuse(); refusal != nil {
		return refusal
	}
	if message := eviction.Refusal(klog.FromContext(ctx), a.evictions.Conditions(), p); message != "" {
		return &pod.Refusal{Reason: eviction.Reason, Message: message}
	}
	return admission.CheckSysctls(a.registration.current(), p, a.options.Config.AllowedUnsafeSysctls)
}

// admittedResources assigns resources to pods that are not refused early, and counts the pods that are refused.
type admittedResources struct {
	*assign.Manager
	early   func(context.Context, *v1.Pod) *pod.Refusal
	metrics *metrics.Metrics
}

// Assign implements workers.Resources.
func (r admittedResources) Assign(ctx context.Context, p *v1.Pod) *pod.Refusal {
	refusal := r.early(ctx, p)
	if refusal == nil {
		refusal = r.Manager.Assign(ctx, p)
	}
	if refusal != nil {
		r.metrics.Rejected(refusal.Reason)
	}
	return refusal
}

// checkResize returns why a pod can never be resized in place, or nil.
func (a *Agent) checkResize(desired, allocated *v1.Pod) *pod.Refusal {
	if refusal := (admission.ResizeRules{Swaps: a.swap.Swaps}).CheckResize(desired, allocated); refusal != nil {
		return refusal
	}
	return a.assigned.CheckResize(desired, allocated)
}
