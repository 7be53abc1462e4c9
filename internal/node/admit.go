// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// admit returns why the node cannot run a pod in addition to others, or nil. It implements workers.Admit.
func (a *Agent) admit(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	if message := eviction.Refusal(klog.FromContext(ctx), a.evictions.Conditions(), p); message != "" {
		return &pod.Refusal{Reason: eviction.Reason, Message: message}
	}
	if refusal := admission.CheckAppArmor(p, a.registration.reporter.machine.appArmor); refusal != nil {
		return refusal
	}
	return admission.Check(klog.FromContext(ctx), a.assigned.Allocatable(a.registration.current()), p, admission.LoadOf(others))
}

// checkResize returns why a pod can never be resized in place, or nil. It implements workers.CheckResize.
func (a *Agent) checkResize(desired, allocated *v1.Pod) *pod.Refusal {
	if refusal := (admission.ResizeRules{Swaps: a.swap.Swaps}).CheckResize(desired, allocated); refusal != nil {
		return refusal
	}
	return a.assigned.CheckResize(desired, allocated)
}
