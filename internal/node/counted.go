// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/volume"
	"github.com/kindred-project/kindred/internal/node/workers"
)

// countedClaims counts how the claims of pods are prepared and unprepared.
type countedClaims struct {
	pod.Claims
	metrics *metrics.Metrics
	clock   clock.PassiveClock
}

// Prepare implements pod.Claims.
func (c countedClaims) Prepare(ctx context.Context, p *v1.Pod) error {
	begin := c.clock.Now()
	err := c.Claims.Prepare(ctx, p)
	c.metrics.ClaimsHandled("PrepareResources", c.clock.Since(begin), err)
	return err
}

// Unprepare implements pod.Claims.
func (c countedClaims) Unprepare(ctx context.Context, uid types.UID) error {
	begin := c.clock.Now()
	err := c.Claims.Unprepare(ctx, uid)
	c.metrics.ClaimsHandled("UnprepareResources", c.clock.Since(begin), err)
	return err
}

// workingPods converts the numbers of pods to those of upstream's metric.
func workingPods(all map[workers.Working]int) map[metrics.WorkingPod]int {
	counts := map[metrics.WorkingPod]int{}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			counts[metrics.WorkingPod{Lifecycle: lifecycle, Config: config}] = 0
			counts[metrics.WorkingPod{Lifecycle: lifecycle, Config: config, Static: "true"}] = 0
		}
		counts[metrics.WorkingPod{Lifecycle: lifecycle, Config: "runtime_only", Static: "unknown"}] = 0
	}
	for w, n := range all {
		class := metrics.WorkingPod{Lifecycle: w.Lifecycle, Config: "desired"}
		if w.Static {
			class.Static = "true"
		}
		switch {
		case w.RuntimeOnly:
			class.Config, class.Static = "runtime_only", "unknown"
		case w.Deleted:
			class.Config = "orphan"
		}
		counts[class] += n
	}
	return counts
}

// podCertificates converts the numbers of certificates to those of upstream's metric.
func podCertificates(all map[volume.CertificateClass]int) map[metrics.PodCertificate]int {
	counts := map[metrics.PodCertificate]int{}
	for class, n := range all {
		counts[metrics.PodCertificate(class)] = n
	}
	return counts
}

// countResizes adds a pod's resize to the numbers of upstream's metrics.
func countResizes(s *metrics.State, p *v1.Pod) {
	for _, c := range p.Status.Conditions {
		switch {
		case c.Status != v1.ConditionTrue:
		case c.Type == v1.PodResizeInProgress:
			s.ResizingPods++
		case c.Type == v1.PodResizePending:
			s.PendingResizes[metrics.PendingResize{Reason: strings.ToLower(c.Reason), Priority: metrics.PriorityBucket(p)}]++
		}
	}
}
