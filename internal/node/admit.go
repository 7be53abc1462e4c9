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
	if refusal := a.shutdown.Refuse(); refusal != nil {
		return refusal
	}
	logger := klog.FromContext(ctx)
	if message := eviction.Refusal(logger, a.evictions.Conditions(), p); message != "" {
		return &pod.Refusal{Reason: eviction.Reason, Message: message}
	}
	if refusal := admission.CheckAppArmor(p, a.registration.reporter.machine.appArmor); refusal != nil {
		return refusal
	}
	return admission.Check(logger, a.assigned.Allocatable(a.registration.current()), p, admission.LoadOf(others), a.options.Config.AllowedUnsafeSysctls...)
}

// countedResources counts the pods that are refused because they cannot be assigned what they request.
type countedResources struct {
	*assign.Manager
	metrics *metrics.Metrics
}

// Assign implements workers.Resources.
func (c countedResources) Assign(ctx context.Context, p *v1.Pod) *pod.Refusal {
	refusal := c.Manager.Assign(ctx, p)
	if refusal != nil {
		c.metrics.Rejected(refusal.Reason)
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
