// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// observeRetry is the pause after the runtime could not be asked.
const observeRetry = time.Second

// Status writes a pod's status to the API, and lets go of pods that are over.
type Status interface {
	// Write writes the status unless pod already has it, and returns the pod as the
	// API then has it; nil when the API has no such pod any more.
	Write(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (*v1.Pod, error)
	// Delete deletes the pod for good: grace period 0, this UID only.
	Delete(ctx context.Context, pod *v1.Pod) error
}

// Parts is what workers share: the node's facts and its subsystems.
type Parts struct {
	Host        Host
	Runtime     *runtime.Runtime
	RuntimeName string
	Clock       clock.Clock
	Recorder    record.EventRecorder
	Status      Status

	Volumes     Volumes
	Environment Environment
	Images      Images
	Probes      Probes
	Logs        Logs
	Handlers    Handlers
	Cgroups     Cgroups
	// RuntimeHandler names the runtime handler of a RuntimeClass; nil knows none.
	RuntimeHandler func(ctx context.Context, class string) (string, error)
}

// Worker runs one pod.
type Worker struct {
	parts  *Parts
	uid    types.UID
	wake   chan struct{}
	writer *statusWriter

	mu       sync.Mutex
	pod      *v1.Pod // with the allocated resources in its spec
	resize   Resize
	gone     bool
	rejected *Refusal
	status   v1.PodStatus
	results  []result
	stale    bool // the runtime should be asked again

	// Only the loop touches what follows.
	memory   Memory
	seen     *runtime.Pod
	busy     map[string]flight
	probed   map[string]bool
	watched  map[string]bool
	stopping bool
	short    sync.WaitGroup // the short ones among busy
}

// result is what a finished action leaves for the loop: a change of memory.
type result struct {
	key   string
	apply func(*Memory)
}

// flight is an action under way.
type flight struct {
	action Action
	cancel context.CancelFunc
}

// NewWorker makes the worker of a pod. rejected is set if the node does not admit it; gone if
// the API does not know it any more.
func NewWorker(parts *Parts, pod *v1.Pod, rejected *Refusal, gone bool) *Worker {
	w := &Worker{
		parts:    parts,
		uid:      pod.UID,
		writer:   newStatusWriter(parts),
		wake:     make(chan struct{}, 1),
		pod:      pod,
		gone:     gone,
		rejected: rejected,
		status:   *pod.Status.DeepCopy(),
		stale:    true,
		memory:   Remember(&pod.Status),
		busy:     map[string]flight{},
		probed:   map[string]bool{},
		watched:  map[string]bool{},
	}
	w.memory.Rejected = rejected
	return w
}

// Update gives the worker the pod as the API has it now, with the resources that are allocated.
func (w *Worker) Update(pod *v1.Pod, resize Resize) {
	w.mu.Lock()
	w.pod, w.resize = pod, resize
	w.mu.Unlock()
	w.Wake()
}

// Vanish tells the worker that the API no longer has the pod.
func (w *Worker) Vanish(last *v1.Pod) {
	w.mu.Lock()
	if last != nil {
		w.pod = last
	}
	w.gone = true
	w.mu.Unlock()
	w.Wake()
}

// Changed tells the worker that the runtime holds something new of the pod.
func (w *Worker) Changed() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.Wake()
}

// Wake asks for another round.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Pod returns the pod with the newest status.
func (w *Worker) Pod() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := *w.pod
	pod.Status = w.status
	return &pod
}

// Rejected says whether the node refused the pod.
func (w *Worker) Rejected() bool { return w.rejected != nil }

// Run is the worker's loop: observe, decide, act, write. It returns when nothing of the pod
// is left on the node, or when ctx ends, leaving the pod as it is.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.letGo()
	go w.writer.run(ctx)
	timer := w.parts.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		again, removed := w.round(ctx)
		if removed {
			return
		}
		timer.Stop()
		var alarm <-chan time.Time
		if again > 0 {
			timer.Reset(again)
			alarm = timer.C()
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-alarm:
		}
	}
}

// round is one turn of the loop. again is when to take the next though nothing happens.
func (w *Worker) round(ctx context.Context) (again time.Duration, removed bool) {
	pod, resize, gone := w.takeUp()
	if err := w.observe(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot see the pod in the runtime", "pod", klog.KObj(pod))
		}
		return observeRetry, false
	}
	now := w.parts.Clock.Now()
	out := Decide(Input{
		Pod: pod, Resize: resize, Gone: gone, Old: w.status, Runtime: w.seen, Memory: w.memory,
		Busy: w.busyKeys(), HostIPs: w.parts.Host.IPs, RuntimeName: w.parts.RuntimeName, Now: now,
	})
	w.memory = out.Memory
	w.publish(pod, gone, out)
	w.tell(pod, out.Events)
	if out.Stopping && !w.stopping {
		w.stopping = true
		w.cancelStarts()
	}
	w.syncProbes(pod, out)
	w.syncLogs(out)
	for _, action := range out.Actions {
		w.launch(ctx, pod, action)
	}
	if out.Removed && len(w.busy) == 0 {
		return 0, true
	}
	if out.Wake.IsZero() {
		return 0, false
	}
	return max(out.Wake.Sub(now), time.Millisecond), false
}

// takeUp applies what finished actions left, and returns the pod to decide on.
func (w *Worker) takeUp() (pod *v1.Pod, resize Resize, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.results {
		if flight, ok := w.busy[r.key]; ok {
			flight.cancel()
			delete(w.busy, r.key)
		}
		if r.apply != nil {
			w.memory = w.memory.clone()
			r.apply(&w.memory)
		}
	}
	w.results = nil
	return w.pod, w.resize, w.gone
}

// observe asks the runtime if something may have changed there.
func (w *Worker) observe(ctx context.Context) error {
	w.mu.Lock()
	stale := w.stale
	w.stale = false
	w.mu.Unlock()
	if !stale && w.seen != nil {
		return nil
	}
	seen, err := w.parts.Runtime.Get(ctx, w.uid)
	if err != nil {
		w.mu.Lock()
		w.stale = true
		w.mu.Unlock()
		return err
	}
	w.seen = seen
	return nil
}

func (w *Worker) publish(pod *v1.Pod, gone bool, out Output) {
	w.mu.Lock()
	w.status = out.Status
	w.mu.Unlock()
	if !gone {
		w.writer.set(pod, out.Status, out.Finished && pod.DeletionTimestamp != nil)
	}
}

func (w *Worker) tell(pod *v1.Pod, events []Event) {
	for _, e := range events {
		w.event(pod, e.Container, e.Type, e.Reason, e.Message)
	}
}

// event records an event on the pod or on one of its containers.
func (w *Worker) event(pod *v1.Pod, container, eventType, reason, message string) {
	ref := Reference(pod)
	if container != "" {
		ref = ContainerReference(pod, container)
	}
	w.parts.Recorder.Event(ref, eventType, reason, message)
}

func (w *Worker) busyKeys() map[string]bool {
	keys := make(map[string]bool, len(w.busy))
	for key := range w.busy {
		keys[key] = true
	}
	return keys
}

// launch begins an action that is not under way yet. One that is to end sooner
// replaces the one under way.
func (w *Worker) launch(ctx context.Context, pod *v1.Pod, action Action) {
	key := action.Key()
	if current, ok := w.busy[key]; ok {
		if action.Kind == StopContainer && action.Deadline.Before(current.action.Deadline) {
			w.hasten(ctx, pod, key, action)
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.busy[key] = flight{action: action, cancel: cancel}
	stage := w.stage(pod, action)
	run := func() {
		w.finish(result{key: key, apply: stage(ctx)})
	}
	if action.short() {
		w.short.Go(run)
		return
	}
	go run()
}

// hasten stops a container sooner than the stop under way would. The runtime takes the
// second call beside the first, which returns with it.
func (w *Worker) hasten(ctx context.Context, pod *v1.Pod, key string, action Action) {
	current := w.busy[key]
	current.action = action
	w.busy[key] = current
	stage := w.stage(pod, action)
	go stage(ctx)
}

func (w *Worker) finish(r result) {
	w.mu.Lock()
	w.results = append(w.results, r)
	w.stale = true
	w.mu.Unlock()
	w.Wake()
}

// cancelStarts ends what would only bring up a pod that is over.
func (w *Worker) cancelStarts() {
	for _, flight := range w.busy {
		switch flight.action.Kind {
		case StartContainer, PrepareVolumes, CreateSandbox, PostStart:
			flight.cancel()
		}
	}
}

// syncProbes starts and stops the probes stage for single containers.
func (w *Worker) syncProbes(pod *v1.Pod, out Output) {
	for id := range out.Probe {
		if w.probed[id] {
			if out.Stopping {
				w.parts.Probes.StopLiveness(id)
			}
			continue
		}
		if out.Stopping {
			continue
		}
		w.probed[id] = true
		w.parts.Probes.Start(w.probeTarget(pod, id), w.probeResult)
	}
	for id := range maps.Clone(w.probed) {
		if !out.Probe[id] {
			delete(w.probed, id)
			w.parts.Probes.Stop(id)
		}
	}
}

func (w *Worker) probeTarget(pod *v1.Pod, id string) ProbeTarget {
	target := ProbeTarget{Pod: w.Pod(), ContainerID: id, Started: isTrue(w.memory.Runs[id].Startup)}
	for _, run := range w.seen.Containers {
		if run.ID == id {
			target.Container = containerOf(pod, run.Name)
			target.StartedAt.Time = run.StartedAt
		}
	}
	return target
}

func (w *Worker) probeResult(r ProbeResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results = append(w.results, result{apply: func(m *Memory) {
		run := m.Runs[r.ContainerID]
		switch r.Kind {
		case Startup:
			run.Startup = &r.Success
		case Liveness:
			run.Liveness = &r.Success
		case Readiness:
			run.Readiness = &r.Success
		}
		m.Runs[r.ContainerID] = run
	}})
	w.Wake()
}

// syncLogs starts and stops the watch over single log files.
func (w *Worker) syncLogs(out Output) {
	for _, run := range w.seen.Containers {
		if out.Running[run.ID] && !w.watched[run.ID] && run.LogPath != "" {
			w.watched[run.ID] = true
			w.parts.Logs.Start(run.ID, run.LogPath)
		}
	}
	for id := range maps.Clone(w.watched) {
		if !out.Running[id] {
			delete(w.watched, id)
			w.parts.Logs.Stop(id)
		}
	}
}

// letGo ends what runs beside the worker for its containers, which stay as they are, and
// waits for what is nearly done.
func (w *Worker) letGo() {
	for id := range w.probed {
		w.parts.Probes.Stop(id)
	}
	for id := range w.watched {
		w.parts.Logs.Stop(id)
	}
	for _, flight := range w.busy {
		flight.cancel()
	}
	w.short.Wait()
}
