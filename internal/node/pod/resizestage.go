// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// target is a running container that is to be given another size.
type target struct {
	id         string
	container  *v1.Container
	have, want size
}

// targets are the running containers whose size is not the allocated one, those which give memory
// back first.
func (w *Worker) targets(pod *v1.Pod) []target {
	d := &decision{Input: Input{Pod: pod, Memory: w.memory}}
	var targets []target
	for _, run := range w.seen.Containers {
		c := resizable(pod, run.Name)
		if c == nil || run.State != runtime.Running || changed(c, run) {
			continue
		}
		if have, want := d.applied(c, run), containerSize(pod, c); have != want {
			targets = append(targets, target{id: run.ID, container: c, have: have, want: want})
		}
	}
	slices.SortStableFunc(targets, func(a, b target) int {
		return int(min(max((a.want.MemoryLimit-a.have.MemoryLimit)-(b.want.MemoryLimit-b.have.MemoryLimit), -1), 1))
	})
	return targets
}

// resizePod is the resize stage: the pod's cgroup grows before its containers do, and shrinks after
// them. told is the error which was told already.
func (w *Worker) resizePod(ctx context.Context, pod *v1.Pod, targets []target, told string) func(*Memory) {
	ctx = context.WithoutCancel(ctx)
	done, err := w.giveSizes(ctx, pod, targets)
	failed := func(*Memory) {}
	if err != nil {
		message := runtime.Message(err)
		if message != told {
			w.event(pod, "", v1.EventTypeWarning, "ResizeError", ResizeMessage("error", pod, pod.Generation, message))
		}
		failed = w.failed(resizeFailure, v1.PodReasonError, message)
	}
	return func(m *Memory) {
		for _, t := range done {
			run := m.Runs[t.id]
			run.Size = &t.want
			m.Runs[t.id] = run
		}
		if err == nil {
			delete(m.Failures, resizeFailure)
			m.Cgroup = ptrTo(podSize(pod))
		}
		failed(m)
	}
}

func (w *Worker) giveSizes(ctx context.Context, pod *v1.Pod, targets []target) (done []target, err error) {
	if err := w.checkUsage(ctx, targets); err != nil {
		return nil, err
	}
	if _, err := w.parts.Cgroups.Grow(pod); err != nil {
		return nil, err
	}
	for _, t := range targets {
		resources := &runtimeapi.ContainerResources{Linux: containerResources(pod, t.container, w.parts.Host.Memory)}
		if err := w.parts.Runtime.Service().UpdateContainerResources(ctx, t.id, resources); err != nil {
			return done, err
		}
		done = append(done, t)
	}
	_, err = w.parts.Cgroups.Ensure(pod)
	return done, err
}

// checkUsage refuses a memory limit which is used up already: to set it would kill.
func (w *Worker) checkUsage(ctx context.Context, targets []target) error {
	var errs []error
	for _, t := range targets {
		if t.want.MemoryLimit == 0 || t.have.MemoryLimit != 0 && t.want.MemoryLimit >= t.have.MemoryLimit {
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
		return fmt.Errorf("cannot decrease memory limits: %w", errors.Join(errs...))
	}
	return nil
}
