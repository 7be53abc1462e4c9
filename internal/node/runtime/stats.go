// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// Stats returns what the running containers of this node use, by pod, with one call.
func (r *Runtime) Stats(ctx context.Context) (map[types.UID]*stats.Pod, error) {
	list, err := r.cri.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{LabelOwner: r.owner}})
	if err != nil {
		return nil, fmt.Errorf("list the stats of containers: %w", err)
	}
	pods := map[types.UID]*stats.Pod{}
	for _, s := range list {
		cpu, memory := s.GetCpu(), s.GetMemory()
		// The runtime also lists containers that have exited. They have no samples.
		if cpu.GetUsageCoreNanoSeconds() == nil || memory.GetWorkingSetBytes() == nil {
			continue
		}
		labels := s.GetAttributes().GetLabels()
		uid := types.UID(labels[LabelPodUID])
		if pods[uid] == nil {
			pods[uid] = &stats.Pod{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]}
		}
		pods[uid].Containers = append(pods[uid].Containers, stats.Container{
			Name:    labels[LabelContainerName],
			Started: r.startOf(uid, s.GetAttributes().GetId()),
			Usage: stats.Usage{
				Time:   time.Unix(0, cpu.GetTimestamp()),
				CPU:    time.Duration(cpu.GetUsageCoreNanoSeconds().GetValue()),
				Memory: memory.GetWorkingSetBytes().GetValue(),
			},
		})
	}
	return pods, nil
}

// startOf returns when a container was started; zero if its pod's worker has not read it yet.
func (r *Runtime) startOf(uid types.UID, container string) time.Time {
	last := r.Last(uid)
	if last == nil {
		return time.Time{}
	}
	for _, c := range last.Containers {
		if c.ID == container {
			return c.StartedAt
		}
	}
	return time.Time{}
}
