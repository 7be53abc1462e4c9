// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// stages is the life of a pod on its node, in order. Each stage is a file with a test of its own.
// Decide chooses the stages that run now. Several may run concurrently, for different containers.
var stages = []stage{
	// Start.
	{kind: PrepareVolumes, run: (*Worker).prepareVolumes, starts: true},
	{kind: PrepareClaims, run: (*Worker).prepareClaims, starts: true},
	{kind: CreateSandbox, run: (*Worker).createSandbox, starts: true, finish: true, changes: true},
	{kind: StartContainer, run: (*Worker).startContainer, starts: true, finish: true, changes: true}, // init containers one by one, then all app containers
	{kind: PostStart, run: (*Worker).postStart, starts: true},

	// While it runs, the worker also keeps probes and log rotation going (syncProbes, syncLogs).
	{kind: ResizePod, run: (*Worker).resizePod, finish: true, changes: true},

	// Stop: app containers at once, then sidecars in reverse order.
	{kind: PreStop, run: (*Worker).preStop},
	{kind: StopContainer, run: (*Worker).stopContainer, changes: true},
	{kind: StopSandbox, run: (*Worker).stopSandbox, finish: true, changes: true},
	{kind: DetachContent, run: (*Worker).detachContent}, // meanwhile
	{kind: Release, run: (*Worker).release},             // then the pod may leave the API

	// Remove, once the API no longer has the pod. Old runs and sandboxes are removed earlier.
	{kind: RemoveSandbox, run: (*Worker).removeSandbox, finish: true, changes: true},
	{kind: RemoveContainer, run: (*Worker).removeContainer, finish: true, changes: true},
	{kind: Clean, run: (*Worker).clean},
}

// stage carries out the actions of one kind.
type stage struct {
	kind Kind
	// run returns the change to the worker's memory, or nil. Its context ends when the worker
	// stops or, if starts is set, when the pod is to stop. CRI calls that change something are
	// not cancelled (context.WithoutCancel): a call that is cut short leaves the runtime in a
	// state that counts as a failure.
	run func(*Worker, context.Context, task) func(*Memory)
	// starts is set if the stage only serves to start the pod. It is cancelled when the pod is to
	// stop.
	starts bool
	// changes is set if the stage changes the pod in the runtime, so that the worker must read it again.
	changes bool
	// finish is set if a worker whose agent stops waits for the stage. Such a stage takes only a
	// moment, and an interrupted one would have to be repeated: an interrupted start of a container
	// would count as failed.
	finish bool
}

// task is what a stage acts on. Stages run concurrently with the worker's loop, so that they get
// copies of what the loop owns.
type task struct {
	Action
	pod    *v1.Pod      // as it was when the action was decided; Worker.Pod has the newest status
	memory Memory       // likewise, read only
	seen   *runtime.Pod // likewise, read only
}

// stageOf returns the stage of a kind.
func stageOf(kind Kind) stage {
	for _, s := range stages {
		if s.kind == kind {
			return s
		}
	}
	panic("unknown action " + kind)
}

// failed returns the change to memory after a failed attempt.
func (w *Worker) failed(of Subject, reason, message string) func(*Memory) {
	now := w.parts.Clock.Now()
	return func(m *Memory) { m.Failures[of] = m.Failures[of].Fail(reason, message, now) }
}

// teardownPause is the pause after a failed teardown.
const teardownPause = time.Second

// reportTeardown records the event for a failed teardown and delays the next attempt. An object
// that is already gone is not a failure.
func (w *Worker) reportTeardown(ctx context.Context, t task, err error) {
	if err == nil || runtime.IsNotFound(err) {
		return
	}
	w.event(t.pod, t.Container, v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+runtime.Message(err))
	select {
	case <-ctx.Done():
	case <-w.parts.Clock.After(teardownPause):
	}
}

// lastSeen returns the pod's containers as the runtime last had them.
func (w *Worker) lastSeen() []runtime.Container {
	if last := w.parts.Runtime.Last(w.uid); last != nil {
		return last.Containers
	}
	return nil
}
