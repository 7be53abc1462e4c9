// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// resizePod is the stage of ResizePod. The pod's cgroup grows before its containers do and shrinks
// after them, so that it is never smaller than their sum; containers that release memory come first.
//
// Assumes: the pod's spec has the allocated resources, and no running container must restart for
// them.
// Leaves: running containers and the pod's cgroup with the allocated size: RunMemory.Size and
// Memory.Cgroup; no Failure of OfResize.
// On failure: a Failure of OfResize, and an event unless the last failure had the same message.
// Containers that were resized before the failure keep their new size.
func (w *Worker) resizePod(ctx context.Context, t task) func(*Memory) {
	ctx = context.WithoutCancel(ctx)
	begin := w.parts.Clock.Now()
	done, err := w.resizeContainers(ctx, t.pod, resizeTargets(t))
	w.observeResize(begin, err)
	failed := func(*Memory) {}
	if err != nil {
		message := runtime.Message(err)
		if message != t.memory.Failures[OfResize].Message {
			w.event(t.pod, "", v1.EventTypeWarning, "ResizeError", ResizeMessage("error", t.pod, t.pod.Generation, message))
		}
		failed = w.failed(OfResize, v1.PodReasonError, message)
	}
	return func(m *Memory) {
		for _, target := range done {
			run := m.Runs[target.id]
			run.Size = &target.want
			m.Runs[target.id] = run
		}
		if err == nil {
			delete(m.Failures, OfResize)
			m.Cgroup = new(criconfig.PodSize(t.pod))
		}
		failed(m)
	}
}

// resizeTarget is a running container whose size is to change.
type resizeTarget struct {
	id         string
	container  *v1.Container
	have, want criconfig.Size
}

// resizeTargets returns the running containers that do not have their allocated size. Those that
// release memory come first.
func resizeTargets(t task) []resizeTarget {
	d := &decision{Input: Input{Pod: t.pod, Memory: t.memory}}
	var targets []resizeTarget
	for _, run := range t.seen.Containers {
		c := resizable(t.pod, run.Name)
		if c == nil || run.State != runtime.Running || changed(t.pod, c, run) {
			continue
		}
		if have, want := d.applied(c, run), criconfig.ContainerSize(t.pod, c); have != want {
			targets = append(targets, resizeTarget{id: run.ID, container: c, have: have, want: want})
		}
	}
	slices.SortStableFunc(targets, func(a, b resizeTarget) int { return cmp.Compare(a.memoryGrowth(), b.memoryGrowth()) })
	return targets
}

// memoryGrowth returns by how much the memory limit is to grow; it is negative if memory is released.
func (t resizeTarget) memoryGrowth() int64 { return t.want.MemoryLimit - t.have.MemoryLimit }

// resizeContainers resizes the targets in order. If one fails, it returns those resized before.
func (w *Worker) resizeContainers(ctx context.Context, pod *v1.Pod, targets []resizeTarget) (done []resizeTarget, err error) {
	if err := w.checkUsage(ctx, pod, targets); err != nil {
		return nil, err
	}
	if _, err := w.parts.Cgroups.Grow(pod); err != nil {
		return nil, err
	}
	for _, t := range targets {
		resources := &runtimeapi.ContainerResources{Linux: w.parts.Host.ContainerResources(pod, t.container)}
		if w.parts.Resources.Exclusive(pod.UID, t.container.Name) {
			resources.Linux.CpuQuota = criconfig.NoQuota
		}
		if err := w.parts.Runtime.Service().UpdateContainerResources(ctx, t.id, resources); err != nil {
			return done, err
		}
		done = append(done, t)
	}
	_, err = w.parts.Cgroups.Ensure(pod)
	return done, err
}

// checkUsage fails if a container, or the pod, uses more memory than its new limit allows. Setting that limit would have
// the kernel kill a process.
func (w *Worker) checkUsage(ctx context.Context, pod *v1.Pod, targets []resizeTarget) error {
	errs, err := w.checkPodUsage(pod)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !lowers(t.want.MemoryLimit, t.have.MemoryLimit) {
			continue
		}
		stats, err := w.parts.Runtime.Service().ContainerStats(ctx, t.id)
		if err != nil {
			return fmt.Errorf("unable to read memory usage for container %q: %w", t.container.Name, err)
		}
		usage := stats.GetMemory().GetUsageBytes()
		if usage == nil {
			usage = stats.GetMemory().GetWorkingSetBytes()
		}
		if usage.GetValue() >= uint64(t.want.MemoryLimit) {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)",
				t.container.Name, t.want.MemoryLimit, usage.GetValue()))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// checkPodUsage returns an error in a list if the pod's containers together use more than the new limit of its cgroup.
func (w *Worker) checkPodUsage(pod *v1.Pod) (errs []error, err error) {
	if !criconfig.IsLimited(pod, v1.ResourceMemory) {
		return nil, nil
	}
	used, limit, err := w.parts.Cgroups.Memory(pod)
	if err != nil {
		return nil, fmt.Errorf("unable to read memory usage for pod %q: %w", klog.KObj(pod), err)
	}
	want := criconfig.PodSize(pod).MemoryLimit
	if limit == 0 || !lowers(want, max(limit, 0)) || used < uint64(want) {
		return nil, nil
	}
	return []error{fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", want, used)}, nil
}

// lowers reports whether a limit of memory is lower than the one before. 0 is no limit.
func lowers(want, have int64) bool { return want != 0 && (have == 0 || want < have) }
