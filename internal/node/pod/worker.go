// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// observeRetry is the pause after the runtime could not be read.
const observeRetry = time.Second

// Status writes the statuses of pods to the API, and deletes pods that are finished.
type Status interface {
	// Write writes the status unless pod already has it, and returns the pod that the API then
	// has, or nil if the API no longer has the pod.
	Write(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (*v1.Pod, error)
	// Delete deletes the pod with grace period 0 and its UID as precondition.
	Delete(ctx context.Context, pod *v1.Pod) error
}

// Parts are the facts and subsystems of the node, which all workers share.
type Parts struct {
	Host        criconfig.Host
	Runtime     *runtime.Runtime
	RuntimeName string
	Clock       clock.Clock
	BootID      string // of the machine
	Recorder    record.EventRecorder
	Status      Status
	// Observer counts what workers do; nil for none.
	Observer Observer
	// MaxRestartDelay is that of Input.
	MaxRestartDelay time.Duration
	// Watcher gets the changes of pods; nil for none.
	Watcher Watcher

	Volumes     Volumes
	Claims      Claims
	Resources   Resources
	Users       UserNamespaces
	Environment Environment
	Images      Images
	Probes      Probes
	Logs        Logs
	Handlers    Handlers
	Cgroups     Cgroups
	// RuntimeHandler returns the runtime handler of a RuntimeClass.
	RuntimeHandler func(ctx context.Context, class string) (string, error)
	// RecursiveReadOnly reports whether the runtime can make the pod's mounts read-only recursively. Nil: it cannot.
	RecursiveReadOnly func(pod *v1.Pod) bool
	// AwaitPod returns when the NetworkPolicies and host ports of a pod are in force for one of its addresses. It is nil
	// if the node applies none.
	AwaitPod func(ctx context.Context, pod *v1.Pod, address netip.Addr) error
	// LimitBandwidth limits what the pod of a sandbox receives and sends, in bits per second; 0 is no limit. It is nil if
	// the pod network is not Kindred's.
	LimitBandwidth func(sandbox string, ingress, egress int64) error
	// AnnouncePod makes the node and its pods forget the hardware address of a former pod with an address of this sandbox.
	// It is nil if the pod network is not Kindred's.
	AnnouncePod func(sandbox string) error
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
	deleted  bool
	rejected *Refusal
	status   v1.PodStatus
	current  *v1.Pod // pod with status; nil if Pod has to join them
	last     *v1.Pod // as of the last decision; nil before the first
	results  []result
	stale    bool // the pod may have changed in the runtime
	acted    bool // actions may have changed it
	// isFinished is Output.Finished of the last decision.
	isFinished bool
	isEvicted  bool
	waits      []span // for images

	// Only the loop uses the following.
	firstSeen time.Time
	rounds    int
	memory    Memory
	seen      *runtime.Pod
	inFlight  map[ActionKey]flight
	probed    map[string]bool // IDs of the containers that are probed
	logged    map[string]bool // IDs of the containers whose log is rotated
	stopping  bool            // starts are cancelled, because the pod is to stop
	toFinish  sync.WaitGroup  // what detach must not interrupt: actions of stage.finish, and announce
}

// result is a change of memory that a finished action or a probe hands to the loop.
type result struct {
	key   ActionKey // of the finished action; zero for a probe
	apply func(*Memory)
}

// flight is an action that has been launched and whose result the loop has not seen.
type flight struct {
	action Action
	cancel context.CancelFunc
}

// NewWorker returns the worker of a pod. rejected is set if the node does not admit the pod, deleted
// if the API no longer has it.
func NewWorker(parts *Parts, pod *v1.Pod, rejected *Refusal, deleted bool) *Worker {
	w := &Worker{
		parts:    parts,
		uid:      pod.UID,
		writer:   newStatusWriter(parts),
		wake:     make(chan struct{}, 1),
		pod:      pod,
		deleted:  deleted,
		rejected: rejected,
		status:   *pod.Status.DeepCopy(),
		stale:    true,
		memory:   Remember(&pod.Status),
		inFlight: map[ActionKey]flight{},
		probed:   map[string]bool{},
		logged:   map[string]bool{},
	}
	w.memory.Rejected = rejected
	return w
}

// Update gives the worker the newest pod of the API, with the allocated resources in its spec.
func (w *Worker) Update(pod *v1.Pod, resize Resize) {
	w.mu.Lock()
	w.pod, w.resize, w.current = pod, resize, nil
	w.mu.Unlock()
	w.Wake()
}

// Deleted notifies the worker that the API no longer has the pod.
func (w *Worker) Deleted(last *v1.Pod) {
	w.mu.Lock()
	if last != nil {
		w.pod, w.current = last, nil
	}
	w.deleted = true
	w.mu.Unlock()
	w.Wake()
}

// RuntimeChanged notifies the worker that the pod may have changed in the runtime.
func (w *Worker) RuntimeChanged() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.Wake()
}

// Wake requests another round.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Pod returns the pod with the newest status. All callers share it.
func (w *Worker) Pod() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		pod := *w.pod
		pod.Status = w.status
		w.current = &pod
	}
	return w.current
}

// Rejected reports whether the node did not admit the pod.
func (w *Worker) Rejected() bool { return w.rejected != nil }

// Run is the worker's loop: observe, decide, act, write. It returns when nothing of the pod is
// left on the node, or when ctx ends; containers keep running then.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.detach()
	w.observeWorker()
	go w.writer.run(ctx)
	timer := w.parts.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		again, removed := w.round(ctx)
		if removed {
			w.observeRemoved()
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

// round is one turn of the loop, syncPod in the kubelet. again is the longest time until the next
// turn, or 0 if only an event starts it. removed reports whether nothing of the pod is left.
func (w *Worker) round(ctx context.Context) (again time.Duration, removed bool) {
	pod, resize, deleted := w.takeInput()
	if err := w.observe(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot read the pod from the runtime, will retry", "pod", klog.KObj(pod))
		}
		return observeRetry, false
	}
	now := w.parts.Clock.Now()
	defer w.observeRound(now, deleted)
	out := Decide(Input{
		Pod: pod, Resize: resize, Deleted: deleted, Old: w.status, Runtime: w.seen, Memory: w.memory,
		Devices: w.devicesOf(pod), Assigned: w.parts.Resources.Has(w.uid), RecursiveReadOnly: w.recursiveReadOnly(pod),
		InFlight: w.inFlightKeys(), HostIPs: w.parts.Host.IPs, RuntimeName: w.parts.RuntimeName, MaxRestartDelay: w.parts.MaxRestartDelay, Now: now,
	})
	w.memory = out.Memory
	w.publish(pod, deleted, out)
	for _, e := range out.Events {
		w.event(pod, e.Container, e.Type, e.Reason, e.Message)
	}
	if out.Stopping && !w.stopping {
		w.stopping = true
		w.cancelStarts()
	}
	w.syncProbes(pod, out)
	w.syncLogs(out)
	for _, action := range out.Actions {
		w.launch(ctx, pod, action)
	}
	if out.Removed && len(w.inFlight) == 0 {
		return 0, true
	}
	if out.Wake.IsZero() {
		return 0, false
	}
	return max(out.Wake.Sub(now), time.Millisecond), false
}

// devicesOf returns the health of the pod's devices, by container.
func (w *Worker) devicesOf(pod *v1.Pod) map[string][]v1.ResourceStatus {
	health := w.parts.Resources.Health(w.uid)
	if !usesClaims(pod) {
		return health
	}
	all := map[string][]v1.ResourceStatus{}
	for _, part := range []map[string][]v1.ResourceStatus{health, w.parts.Claims.Health(pod)} {
		for container, devices := range part {
			all[container] = append(all[container], devices...)
		}
	}
	return all
}

// recursiveReadOnly reports whether the pod asks for recursive read-only mounts and gets them.
func (w *Worker) recursiveReadOnly(pod *v1.Pod) bool {
	return w.parts.RecursiveReadOnly != nil && wantsRecursiveReadOnly(pod) && w.parts.RecursiveReadOnly(pod)
}

// takeInput applies the results of finished actions and probes, and returns the pod to decide on.
func (w *Worker) takeInput() (pod *v1.Pod, resize Resize, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.results {
		if flight, ok := w.inFlight[r.key]; ok {
			flight.cancel()
			delete(w.inFlight, r.key)
		}
		if r.apply != nil {
			w.memory = w.memory.clone()
			r.apply(&w.memory)
		}
	}
	w.results = nil
	return w.pod, w.resize, w.deleted
}

// observe reads the pod from the runtime if it may have changed there.
func (w *Worker) observe(ctx context.Context) error {
	w.mu.Lock()
	stale, acted := w.stale, w.acted
	w.stale, w.acted = false, false
	w.mu.Unlock()
	read := w.parts.Runtime.Refresh
	switch {
	case stale || w.seen == nil:
		read = w.parts.Runtime.Get
	case !acted:
		return nil
	}
	seen, err := read(ctx, w.uid)
	if err != nil {
		w.mu.Lock()
		w.stale = true
		w.mu.Unlock()
		return err
	}
	w.seen = seen
	return nil
}

// publish makes the status visible to the node's own readers and has the writer write it.
func (w *Worker) publish(pod *v1.Pod, deleted bool, out Output) {
	w.mu.Lock()
	before := published{pod: w.last, status: w.status, finished: w.isFinished}
	w.status, w.isFinished, w.last, w.current = out.Status, out.Finished, pod, nil
	w.mu.Unlock()
	w.observeStatus(pod, &before.status, &out.Status)
	w.notify(pod, deleted, before, out)
	if !deleted {
		w.writer.set(pod, out.Status, out.Finished && pod.DeletionTimestamp != nil)
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

func (w *Worker) inFlightKeys() map[ActionKey]bool {
	keys := make(map[ActionKey]bool, len(w.inFlight))
	for key := range w.inFlight {
		keys[key] = true
	}
	return keys
}

// launch starts an action unless one with its key runs already. A StopContainer with an earlier
// deadline than the running one's is started in addition.
func (w *Worker) launch(ctx context.Context, pod *v1.Pod, action Action) {
	key := action.Key()
	if current, ok := w.inFlight[key]; ok {
		if action.Kind == StopContainer && action.Deadline.Before(current.action.Deadline) {
			w.shortenStop(ctx, pod, action)
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.inFlight[key] = flight{action: action, cancel: cancel}
	stage, task := stageOf(action.Kind), w.taskOf(pod, action)
	run := func() {
		w.finished(result{key: key, apply: stage.run(w, ctx, task)}, stage.changes)
	}
	if stage.finish {
		w.toFinish.Go(run)
		return
	}
	go run()
}

// shortenStop stops a container earlier than the running StopContainer would. The runtime accepts a
// second call while the first runs. The first returns when the container has ended.
func (w *Worker) shortenStop(ctx context.Context, pod *v1.Pod, action Action) {
	current := w.inFlight[action.Key()]
	current.action = action
	w.inFlight[action.Key()] = current
	stage, task := stageOf(action.Kind), w.taskOf(pod, action)
	go stage.run(w, ctx, task)
}

func (w *Worker) taskOf(pod *v1.Pod, action Action) task {
	return task{Action: action, pod: pod, memory: w.memory, seen: w.seen}
}

// finished hands a result to the loop, which reads from the runtime what the action has changed there.
func (w *Worker) finished(r result, changes bool) {
	w.mu.Lock()
	w.results = append(w.results, r)
	w.acted = w.acted || changes
	w.mu.Unlock()
	w.Wake()
}

// cancelStarts cancels the running actions that are pointless once the pod is to stop.
func (w *Worker) cancelStarts() {
	for key, flight := range w.inFlight {
		if stageOf(key.Kind).starts {
			flight.cancel()
		}
	}
}

// syncProbes starts and stops the probes of each container. While the pod stops, it starts none, and
// keeps running ones without liveness, because nothing restarts a container then.
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

// syncLogs starts and stops the rotation of each container's log.
func (w *Worker) syncLogs(out Output) {
	for _, run := range w.seen.Containers {
		if out.Running[run.ID] && !w.logged[run.ID] && run.LogPath != "" {
			w.logged[run.ID] = true
			w.parts.Logs.Start(run.ID, run.LogPath)
		}
	}
	for id := range maps.Clone(w.logged) {
		if !out.Running[id] {
			delete(w.logged, id)
			w.parts.Logs.Stop(id)
		}
	}
}

// detach stops probes, log rotation and running actions, and waits for those that must finish. The
// containers are left as they are.
func (w *Worker) detach() {
	for id := range w.probed {
		w.parts.Probes.Stop(id)
	}
	for id := range w.logged {
		w.parts.Logs.Stop(id)
	}
	for _, flight := range w.inFlight {
		flight.cancel()
	}
	w.toFinish.Wait()
}
