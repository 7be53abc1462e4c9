// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// A stage carries out one kind of action. It returns what the worker should
// remember, or nil. Its context ends when the worker stops, or when a pod that is over
// makes the action pointless; calls to the runtime are never cut short by that.
type stage func(ctx context.Context) func(*Memory)

// stage returns the stage for an action.
func (w *Worker) stage(pod *v1.Pod, a Action) stage {
	switch a.Kind {
	case PrepareVolumes:
		return func(ctx context.Context) func(*Memory) { return w.prepareVolumes(ctx, pod) }
	case CreateSandbox:
		return func(ctx context.Context) func(*Memory) { return w.createSandbox(ctx, pod, a) }
	case StopSandbox:
		return func(ctx context.Context) func(*Memory) { return w.stopSandbox(ctx, pod, a) }
	case RemoveSandbox:
		return func(ctx context.Context) func(*Memory) { return w.removeSandbox(ctx, pod, a) }
	case StartContainer:
		return func(ctx context.Context) func(*Memory) { return w.startContainer(ctx, pod, a) }
	case PostStart:
		return func(ctx context.Context) func(*Memory) { return w.postStart(ctx, pod, a) }
	case PreStop:
		return func(ctx context.Context) func(*Memory) { return w.preStop(ctx, pod, a) }
	case StopContainer:
		return func(ctx context.Context) func(*Memory) { return w.stopContainer(ctx, pod, a) }
	case ResizePod:
		targets, told := w.targets(pod), w.memory.Failures[resizeFailure].Message
		return func(ctx context.Context) func(*Memory) { return w.resizePod(ctx, pod, targets, told) }
	case RemoveContainer:
		return func(ctx context.Context) func(*Memory) { return w.removeContainer(ctx, pod, a) }
	case Release:
		return func(ctx context.Context) func(*Memory) { return w.release(ctx, pod) }
	case Clean:
		return func(context.Context) func(*Memory) { return w.clean(pod) }
	}
	panic("unknown action " + a.Kind)
}

// failed remembers a failed attempt under a name.
func (w *Worker) failed(name, reason, message string) func(*Memory) {
	now := w.parts.Clock.Now()
	return func(m *Memory) { m.Failures[name] = m.Failures[name].Fail(reason, message, now) }
}

// The volumes stage.

func (w *Worker) prepareVolumes(ctx context.Context, pod *v1.Pod) func(*Memory) {
	err := w.parts.Volumes.Prepare(ctx, w.Pod())
	if err == nil {
		return func(m *Memory) { m.Prepared(pod) }
	}
	if ctx.Err() == nil {
		w.event(pod, "", v1.EventTypeWarning, "FailedMount", err.Error())
	}
	return w.failed(volumesFailure, "FailedMount", err.Error())
}

// release is what prepareVolumes and createSandbox did, undone.
func (w *Worker) release(ctx context.Context, pod *v1.Pod) func(*Memory) {
	err := errors.Join(w.parts.Volumes.Teardown(ctx, pod.UID), w.parts.Cgroups.Remove(pod.UID))
	if err == nil {
		return func(m *Memory) { m.Released = true }
	}
	if ctx.Err() == nil {
		w.event(pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
	}
	return w.failed(volumesFailure, "FailedKillPod", err.Error())
}

// clean removes the last files of a pod, at the end of everything.
func (w *Worker) clean(pod *v1.Pod) func(*Memory) {
	layout := w.parts.Host.Layout
	_ = os.RemoveAll(layout.PodDir(pod.UID))
	_ = os.RemoveAll(layout.PodLogsDir(pod.Namespace, pod.Name, pod.UID))
	w.parts.Runtime.Forget(pod.UID)
	return func(m *Memory) { m.Cleaned = true }
}

// The sandbox stage.

func (w *Worker) createSandbox(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	if err := w.runSandbox(context.WithoutCancel(ctx), pod, a); err != nil {
		message := "Failed to create pod sandbox: " + runtime.Message(err)
		w.event(pod, "", v1.EventTypeWarning, "FailedCreatePodSandBox", message)
		return w.failed(sandboxFailure, "FailedCreatePodSandBox", message)
	}
	return func(m *Memory) {
		delete(m.Failures, sandboxFailure)
		m.Cgroup = ptrTo(podSize(pod))
	}
}

func (w *Worker) runSandbox(ctx context.Context, pod *v1.Pod, a Action) error {
	parent, err := w.parts.Cgroups.Ensure(pod)
	if err != nil {
		return err
	}
	dns, fellBack, err := w.parts.Host.DNS.For(pod)
	if err != nil {
		return err
	}
	if fellBack {
		w.event(pod, "", v1.EventTypeWarning, "MissingClusterDNS", fmt.Sprintf(
			"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			nameAndUID(pod), v1.DNSClusterFirst, v1.DNSDefault))
	}
	config, err := w.parts.Host.sandboxConfig(pod, a.Attempt, parent, dns)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	handler := ""
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
		if handler, err = w.parts.RuntimeHandler(ctx, *class); err != nil {
			return err
		}
	}
	_, err = w.parts.Runtime.Service().RunPodSandbox(ctx, config, handler)
	return err
}

func (w *Worker) stopSandbox(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	err := w.parts.Runtime.Service().StopPodSandbox(context.WithoutCancel(ctx), a.ID)
	if err == nil || runtime.IsNotFound(err) {
		return func(m *Memory) { m.Stopped[a.ID] = true }
	}
	return w.report(ctx, pod, a, err)
}

func (w *Worker) removeSandbox(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	err := w.parts.Runtime.Service().RemovePodSandbox(context.WithoutCancel(ctx), a.ID)
	return w.report(ctx, pod, a, err)
}

// report tells of a failed teardown and slows its repetition down.
func (w *Worker) report(ctx context.Context, pod *v1.Pod, a Action, err error) func(*Memory) {
	if err == nil || runtime.IsNotFound(err) {
		return nil
	}
	w.event(pod, a.Container, v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+runtime.Message(err))
	select {
	case <-ctx.Done():
	case <-w.parts.Clock.After(time.Second):
	}
	return nil
}

// The termination stage.

func (w *Worker) preStop(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	c := containerOf(pod, a.Container)
	go func() {
		_, err := w.parts.Handlers.Run(ctx, w.Pod(), c, a.ID, c.Lifecycle.PreStop)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			// The message stays out of the event: a hook's output may be secret.
			w.event(pod, a.Container, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	case <-ctx.Done():
	case <-w.parts.Clock.After(a.Deadline.Sub(w.parts.Clock.Now())):
	}
	return func(m *Memory) {
		run := m.Runs[a.ID]
		run.PreStopped = true
		m.Runs[a.ID] = run
	}
}

func (w *Worker) stopContainer(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	grace := max(a.Deadline.Sub(w.parts.Clock.Now()), minGrace)
	err := w.parts.Runtime.Service().StopContainer(context.WithoutCancel(ctx), a.ID, int64((grace+time.Second-1)/time.Second))
	return w.report(ctx, pod, a, err)
}

func (w *Worker) removeContainer(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	for _, run := range w.lastSeen() {
		if run.ID != a.ID || run.LogPath == "" {
			continue
		}
		rotated, _ := filepath.Glob(run.LogPath + ".*")
		for _, path := range append(rotated, run.LogPath) {
			_ = os.Remove(path)
		}
	}
	err := w.parts.Runtime.Service().RemoveContainer(context.WithoutCancel(ctx), a.ID)
	return w.report(ctx, pod, a, err)
}

func (w *Worker) lastSeen() []runtime.Container {
	if last := w.parts.Runtime.Last(w.uid); last != nil {
		return last.Containers
	}
	return nil
}
