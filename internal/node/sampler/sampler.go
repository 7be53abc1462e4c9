// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/stats"
	"github.com/kindred-project/kindred/internal/node/usage"
)

// Pod is a pod of the node and what runs of it.
type Pod struct {
	*v1.Pod
	// Sandbox is the ID of the sandbox; empty if none is ready.
	Sandbox        string
	SandboxCreated time.Time
	Containers     []Container
}

// Container is a running container.
type Container struct {
	Name, ID, Image string
	Created         time.Time
	Started         time.Time
	Attempt         uint32
}

// Runtime is the used part of CRI.
type Runtime interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// Images is the used part of CRI's image service.
type Images interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Cgroups reads cgroups. *cgroup.Manager implements it.
type Cgroups interface {
	Path(*v1.Pod) string
	Parent() string
	ContainerPath(pod, id string) (string, error)
	Sample(path string) (cgroup.Sample, error)
	Limits(path string) cgroup.Limits
	IO(path string) []cgroup.DeviceIO
	Processes(path string) (uint64, error)
	PIDs(path string) ([]int, error)
}

// Options are what the sampler measures and what it depends on.
type Options struct {
	// Node is the node's name, and RootDir the directory of its pods.
	Node, RootDir string
	// Memory is what processes of the machine can use, in bytes, so that it has no huge pages.
	Memory int64
	Clock  clock.WithTicker
	// Pods returns the pods of the node.
	Pods    func() []Pod
	Cgroups Cgroups
	// FromRuntime measures the containers by pod, if pods have no cgroups of their own.
	FromRuntime func(context.Context) (map[types.UID]*stats.Pod, error)
	Runtime     Runtime
	// Filter selects this node's containers.
	Filter *runtimeapi.ContainerStatsFilter
	Images Images
	// Volumes returns the prepared volumes of a pod.
	Volumes func(types.UID) []Volume
	// Logs returns the directory of the logs of a container.
	Logs func(pod *v1.Pod, container string) string
	// Known returns what a directory uses if that has been measured elsewhere; nil for none. Other directories are walked.
	Known func(dir string) (usage.Used, bool)
	// DiskPeriod is the interval at which disk usage is measured; negative means never.
	DiskPeriod time.Duration
}

// basePeriod is the interval at which CPU times are kept for rates.
const basePeriod = 10 * time.Second

// Sampler measures a node.
type Sampler struct {
	options Options
	started time.Time
	disk    atomic.Pointer[disk]

	mu    sync.Mutex
	bases bases
}

// New returns a Sampler. It has no rates and no disk usage before Run has measured them.
func New(options Options) *Sampler {
	s := &Sampler{options: options, started: options.Clock.Now()}
	s.disk.Store(&disk{})
	return s
}

// Run measures in the background until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.every(ctx, basePeriod, s.keepBase) })
	if s.options.DiskPeriod >= 0 {
		all.Go(func() { s.every(ctx, max(s.options.DiskPeriod, time.Second), s.measureDisk) })
	}
	all.Wait()
}

func (s *Sampler) every(ctx context.Context, period time.Duration, measure func(context.Context)) {
	ticker := s.options.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		measure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// keepBase keeps the CPU times of all cgroups.
func (s *Sampler) keepBase(ctx context.Context) {
	snapshot := s.take(ctx, false)
	points := points{at: snapshot.Time, cpu: map[string]time.Duration{}}
	snapshot.each(func(m *Measured) { points.cpu[m.Cgroup] = m.CPU })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bases.push(points)
}

func (s *Sampler) measureDisk(ctx context.Context) {
	measured, err := s.diskNow(ctx)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot measure all of the disk usage, will retry")
	}
	s.disk.Store(measured)
}
