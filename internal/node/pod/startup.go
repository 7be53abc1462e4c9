// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// span is a time during which the pod waited for an image.
type span struct{ begin, end time.Time }

// ensureImage has an image made present, and notes how long that took.
func (w *Worker) ensureImage(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (criconfig.Image, error) {
	begin := w.parts.Clock.Now()
	image, err := w.parts.Images.EnsurePresent(ctx, pod, c, sandbox)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, span{begin, w.parts.Clock.Now()})
	return image, err
}

// takeWaits returns the times since the last call.
func (w *Worker) takeWaits() []span {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.waits
	w.waits = nil
	return waits
}

// total returns the time that at least one of the spans covers: containers may wait for images at the same time.
func total(spans []span) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return a.begin.Compare(b.begin) })
	var sum time.Duration
	var covered time.Time
	for _, s := range spans {
		if s.begin.Before(covered) {
			s.begin = covered
		}
		if s.end.After(s.begin) {
			sum, covered = sum+s.end.Sub(s.begin), s.end
		}
	}
	return sum
}

// initTime returns how long init containers ran to their end.
func initTime(status *v1.PodStatus) time.Duration {
	var sum time.Duration
	for i := range status.InitContainerStatuses {
		c := &status.InitContainerStatuses[i]
		for _, run := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if run != nil {
				sum += max(run.FinishedAt.Sub(run.StartedAt.Time), 0)
			}
		}
	}
	return sum
}

// isStateful reports whether a pod has a volume with data of its own. The service level of pod starts is about other pods.
func isStateful(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// observeRunning counts a pod whose containers all run.
func (w *Worker) observeRunning(pod *v1.Pod, status *v1.PodStatus) {
	sinceCreated := w.parts.Clock.Since(pod.CreationTimestamp.Time)
	w.parts.Observer.PodStarted(w.parts.Clock.Since(w.firstSeen), sinceCreated)
	if waited := total(w.takeWaits()); !isStateful(pod) {
		w.parts.Observer.PodStartedSLI(max(sinceCreated-waited-initTime(status), 0), pod.Spec.HostNetwork)
	}
}

// SeenAt sets when the agent first saw the pod. It must be called before Run.
func (w *Worker) SeenAt(at time.Time) { w.firstSeen = at }

// observeWorker counts a worker that starts.
func (w *Worker) observeWorker() {
	now := w.parts.Clock.Now()
	if w.firstSeen.IsZero() {
		w.firstSeen = now
	}
	if w.parts.Observer != nil {
		w.parts.Observer.WorkerStarted(now.Sub(w.firstSeen), len(w.Pod().Spec.Containers))
	}
}

// Lifecycle returns "sync" for a pod that is to run, "terminating", or "terminated", as upstream's metrics name them.
func (w *Worker) Lifecycle() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isFinished:
		return "terminated"
	case w.deleted || w.isEvicted || w.pod.DeletionTimestamp != nil || IsOver(w.status.Phase):
		return "terminating"
	}
	return "sync"
}

// IsDeleted reports whether the API does not have the pod any more.
func (w *Worker) IsDeleted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deleted
}
