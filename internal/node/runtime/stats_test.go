// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// statsCRI is a runtime that only has stats.
type statsCRI struct {
	cri.RuntimeService
	stats []*runtimeapi.ContainerStats
}

func (f statsCRI) ListContainerStats(_ context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	var list []*runtimeapi.ContainerStats
	for _, s := range f.stats {
		if matches(s.Attributes.Labels, filter.LabelSelector) {
			list = append(list, s)
		}
	}
	return list, nil
}

func TestStats(t *testing.T) {
	of := func(owner, id, name string, cpu, memory uint64) *runtimeapi.ContainerStats {
		s := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: id, Labels: map[string]string{
			LabelOwner: owner, LabelPodUID: "uid", LabelPodNamespace: "ns", LabelPodName: "p", LabelContainerName: name,
		}}}
		if cpu > 0 {
			s.Cpu = &runtimeapi.CpuUsage{Timestamp: 5e9, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: cpu}}
			s.Memory = &runtimeapi.MemoryUsage{Timestamp: 5e9, WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory}}
		}
		return s
	}
	r := New(statsCRI{stats: []*runtimeapi.ContainerStats{
		of("me", "1", "app", 7, 8), of("me", "2", "starting", 3, 4), of("me", "3", "exited", 0, 0), of("other", "4", "app", 1, 1),
	}}, "me", clock.RealClock{})
	r.seen["uid"] = &Pod{Containers: []Container{{ID: "0", StartedAt: time.Unix(1, 0)}, {ID: "1", StartedAt: time.Unix(2, 0)}}}
	got, err := r.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]*stats.Pod{"uid": {Namespace: "ns", Name: "p", Containers: []stats.Container{
		{Name: "app", Started: time.Unix(2, 0), Usage: stats.Usage{Time: time.Unix(5, 0), CPU: 7, Memory: 8}},
		{Name: "starting", Usage: stats.Usage{Time: time.Unix(5, 0), CPU: 3, Memory: 4}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
