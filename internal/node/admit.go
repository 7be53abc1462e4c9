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
)

// admit returns why the node does not admit a pod beside others, or nil, and counts refusals.
func (a *Agent) admit(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	refusal := a.refusal(ctx, p, others)
	if refusal != nil {
		a.metrics.Rejected(refusal.Reason)
	}
	return refusal
}

func (a *Agent) refusal(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	if refusal := a.earlyRefusal(ctx, p); refusal != nil {
		return refusal
	}
	if refusal := admission.CheckAppArmor(p, a.registration.reporter.machine.appArmor); refusal != nil {
		return refusal
	}
	node := a.assigned.Allocatable(a.registration.current())
	return admission.Check(klog.FromContext(ctx), node, p, admission.LoadOf(others), a.options.Config.AllowedUnsafeSysctls...)
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
