// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// Stats takes a sample of the node, its pods and their containers. It returns what could be measured along
// with an error.
func (a *Agent) Stats(ctx context.Context) (stats.Summary, error) {
	now := a.options.Clock.Now()
	var summary stats.Summary
	machine, err := cgroup.MachineUsage()
	if err == nil {
		summary.Node = &stats.Usage{Time: now, CPU: machine.CPU, Memory: machine.Memory}
	}
	running, listErr := a.view.Stats(ctx)
	for _, p := range a.pods.Pods() {
		pod := running[p.UID]
		if pod == nil {
			continue
		}
		slices.SortFunc(pod.Containers, func(a, b stats.Container) int { return cmp.Compare(a.Name, b.Name) })
		// The cgroup also has the sandbox. It may be gone already.
		if used, err := a.cgroups.Usage(p); err == nil {
			pod.Usage = &stats.Usage{Time: now, CPU: used.CPU, Memory: used.Memory}
		}
		summary.Pods = append(summary.Pods, *pod)
	}
	return summary, errors.Join(err, listErr)
}
