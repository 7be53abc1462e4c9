// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// Resources returns what /metrics/resource serves.
func (s *Sampler) Resources(ctx context.Context) (stats.Summary, error) {
	snapshot := s.take(ctx, false)
	return resources(snapshot), snapshot.Err
}

func resources(snapshot *Snapshot) stats.Summary {
	summary := stats.Summary{Node: usageOf(snapshot.Node)}
	if swap := machineSwap(snapshot.Time); summary.Node != nil && swap != nil {
		summary.Node.Swap = swap.SwapUsageBytes
	}
	for _, p := range snapshot.Pods {
		pod := stats.Pod{Namespace: p.Namespace, Name: p.Name, Usage: usageOf(p.Usage)}
		for _, c := range p.Containers {
			pod.Containers = append(pod.Containers, stats.Container{Name: c.Name, Started: c.Started, Usage: *usageOf(c.Measured)})
		}
		summary.Pods = append(summary.Pods, pod)
	}
	return summary
}

func usageOf(m *Measured) *stats.Usage {
	if m == nil {
		return nil
	}
	return &stats.Usage{Time: m.Time, CPU: m.CPU, Memory: m.Memory, Swap: m.Swap}
}
