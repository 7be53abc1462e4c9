// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Input is everything a decision depends on.
type Input struct {
	// Pod is the pod as the API last showed it.
	Pod *v1.Pod
	// Gone says that the API no longer has the pod.
	Gone bool
	// Resize is what the node says to a change of the pod's resources. Pod's spec has those that are
	// allocated.
	Resize Resize
	// Old is the status decided last or, for a new worker, the API's.
	Old v1.PodStatus
	// Runtime is what the runtime was last seen to hold.
	Runtime *runtime.Pod
	// Memory is what the worker knows and the runtime does not.
	Memory Memory
	// Busy holds the keys of the actions under way.
	Busy map[string]bool
	// HostIPs are the node's addresses, one a family.
	HostIPs []string
	// RuntimeName is the scheme of container IDs, as in containerd://...
	RuntimeName string
	Now         time.Time
}

// Output is a decision.
type Output struct {
	// Status is the pod's whole status, to be written if it differs from the last.
	Status v1.PodStatus
	// Actions are what should be under way now. Those which already are appear
	// again; their keys tell.
	Actions []Action
	// Events are told once.
	Events []Event
	// Memory is the worker's next memory.
	Memory Memory
	// Probe holds the IDs of the containers to probe, Running of those whose logs
	// grow. Stopping asks to leave liveness and startup probes out.
	Probe    map[string]bool
	Running  map[string]bool
	Stopping bool
	// Wake is when to decide again though nothing happened; zero for never.
	Wake time.Time
	// Finished says that nothing of the pod runs and its resources are
	// released: a deleted pod may leave the API.
	Finished bool
	// Removed says that nothing of the pod is left on the node at all.
	Removed bool
}

// Event is an event to record on the pod or, if named, on one of its containers.
type Event struct {
	Container             string
	Type, Reason, Message string
}

// Refusal is why a pod must fail, whatever its containers did: the reason and
// message of its status.
type Refusal struct {
	Reason, Message string
}

// Memory is what a worker knows of its pod beside what the runtime holds. All of
// it may be lost: Remember rebuilds what matters from the API's status.
type Memory struct {
	// Rejected is set when the node did not admit the pod.
	Rejected *Refusal
	// Expired is set once activeDeadlineSeconds are over.
	Expired *Refusal
	// VolumesReady is set by the volumes stage; Released and Cleaned say that what
	// the pod had on the node is undone.
	VolumesReady bool
	Released     bool
	Cleaned      bool
	// PreparedFor is the pod's metadata that its volumes show.
	PreparedFor string
	// StoppingSince is when the pod began to stop.
	StoppingSince time.Time
	// Failures holds what could not be started, by container name; the
	// sandbox is under "", the volumes under "/" and a resize under "/resize".
	Failures map[string]Failure
	// Runs holds what is known of single runs of containers, by container ID.
	Runs map[string]RunMemory
	// Stopped holds the IDs of the sandboxes that were stopped.
	Stopped map[string]bool
	// Resizing says that a resize is under way, ResizeBegun the generation which asked for it.
	Resizing    bool
	ResizeBegun int64
	// Cgroup is the size the pod's cgroup has; nil means not known.
	Cgroup *size
}

// The names under which Memory.Failures holds what is not a container.
const (
	sandboxFailure = ""
	volumesFailure = "/"
	resizeFailure  = "/resize"
)

// Failure is a failed attempt to start something.
type Failure struct {
	Reason, Message string
	// Count is how many attempts failed in a row.
	Count int
	// RetryAt is when to try again.
	RetryAt time.Time
}

// RunMemory is what the worker knows of one run of a container.
type RunMemory struct {
	// StartFailed says that the runtime could not start it, as somebody was told.
	StartFailed bool
	// Hooked says that postStart is over (or there is none).
	Hooked bool
	// HookFailed says that it failed, so that the container must go.
	HookFailed bool
	// PreStopped says that preStop is over.
	PreStopped bool
	// Deadline is set once the container is being stopped: when it gets KILL.
	Deadline time.Time
	// BackOffTold says that the BackOff event after this run was recorded.
	BackOffTold bool
	// Size is what the worker gave it last; nil if it did not. Shown are the resources the API showed
	// when the worker began.
	Size  *size
	Shown *v1.ResourceRequirements
	// The last results of the probes; nil means not known.
	Startup, Liveness, Readiness *bool
}

// Prepared notes that the pod's volumes are present and show the pod as it is.
func (m *Memory) Prepared(pod *v1.Pod) {
	m.VolumesReady, m.PreparedFor = true, shownMetadata(pod)
	delete(m.Failures, volumesFailure)
}

// clone copies the maps, so that a decision never changes its input.
func (m Memory) clone() Memory {
	m.Failures = cloneMap(m.Failures)
	m.Runs = cloneMap(m.Runs)
	m.Stopped = cloneMap(m.Stopped)
	return m
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// Remember rebuilds a memory from the status the API has: containers it shows as
// running had their postStart hook, and keep being started and ready until a
// probe says otherwise; what it shows as ended has ended.
func Remember(status *v1.PodStatus) Memory {
	memory := Memory{}.clone()
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for _, c := range list {
			for _, end := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
				if end != nil {
					memory.Runs[trimScheme(end.ContainerID)] = RunMemory{StartFailed: true}
				}
			}
			if c.State.Running == nil || c.ContainerID == "" {
				continue
			}
			run := RunMemory{Hooked: true, Shown: c.Resources}
			if c.Started != nil && *c.Started {
				run.Startup = c.Started
			}
			if c.Ready {
				ready := true
				run.Readiness = &ready
			}
			memory.Runs[trimScheme(c.ContainerID)] = run
		}
	}
	if c := conditionOf(status.Conditions, v1.PodResizeInProgress); c != nil {
		memory.Resizing, memory.ResizeBegun = true, c.ObservedGeneration
		if c.Reason == v1.PodReasonError {
			memory.Failures[resizeFailure] = Failure{Reason: c.Reason, Message: c.Message}
		}
	}
	return memory
}

// Decide says what to do next for a pod. It is a pure function: the same input
// always gives the same output, and nothing is done.
func Decide(in Input) Output {
	d := &decision{Input: in}
	d.Memory = in.Memory.clone()
	d.out.Probe, d.out.Running = map[string]bool{}, map[string]bool{}
	d.overlookCutShort()
	d.expire()

	d.out.Status = d.status()
	phase := d.out.Status.Phase
	d.out.Stopping = d.mustStop(phase)
	if d.out.Stopping {
		d.stop()
	} else {
		d.run()
	}
	d.forgetRuns()
	d.publish()
	d.out.Memory = d.Memory
	return d.out
}

// decision is a Decide under way.
type decision struct {
	Input
	out Output
}

func (d *decision) do(a Action) { d.out.Actions = append(d.out.Actions, a) }

func (d *decision) tell(container, eventType, reason, message string) {
	d.out.Events = append(d.out.Events, Event{Container: container, Type: eventType, Reason: reason, Message: message})
}

// wakeAt asks for another decision at t.
func (d *decision) wakeAt(t time.Time) {
	if d.out.Wake.IsZero() || t.Before(d.out.Wake) {
		d.out.Wake = t
	}
}

// overlookCutShort takes runs that ended before they began, and whose failure no agent ever heard
// of, for merely created: the runtime gave up on them when the agent that was starting them
// died. They count neither as a run nor as a failure, and are started again.
func (d *decision) overlookCutShort() {
	seen := *d.Runtime
	seen.Containers = slices.Clone(seen.Containers)
	for i := range seen.Containers {
		run := &seen.Containers[i]
		if run.State == runtime.Exited && !run.StartedAt.After(time.Unix(0, 0)) && !d.Memory.Runs[run.ID].StartFailed {
			run.State = runtime.Created
		}
	}
	d.Runtime = &seen
}

// expire notes when the pod has been active for longer than it may.
func (d *decision) expire() {
	limit := d.Pod.Spec.ActiveDeadlineSeconds
	if limit == nil || d.Old.StartTime == nil || d.Memory.Expired != nil || IsOver(d.Old.Phase) {
		return
	}
	deadline := d.Old.StartTime.Add(time.Duration(*limit) * time.Second)
	if d.Now.Before(deadline) {
		d.wakeAt(deadline)
		return
	}
	d.Memory.Expired = &Refusal{
		Reason:  "DeadlineExceeded",
		Message: "Pod was active on the node longer than the specified deadline",
	}
	d.tell("", v1.EventTypeNormal, d.Memory.Expired.Reason, d.Memory.Expired.Message)
}

// mustStop says whether the pod is over, or should be. There is no way back.
func (d *decision) mustStop(phase v1.PodPhase) bool {
	return d.deleting() || !d.Memory.StoppingSince.IsZero() || d.Memory.Rejected != nil || d.Memory.Expired != nil ||
		IsOver(d.Pod.Status.Phase) || IsOver(phase) || d.allDone()
}

func (d *decision) deleting() bool { return d.Gone || d.Pod.DeletionTimestamp != nil }

// allDone says whether every app container ended for good. Sidecars which still
// run do not keep the pod (KEP-753).
func (d *decision) allDone() bool {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		latest, ok := d.Runtime.Latest(c.Name)
		if !ok || d.busy(StartContainer, c.Name) || latest.State != runtime.Exited || shouldRestart(d.Pod, c, latest) {
			return false
		}
	}
	return true
}

func (d *decision) busy(kind Kind, subject string) bool { return d.Busy[key(kind, subject)] }

// starting says whether any container start is under way.
func (d *decision) starting() bool {
	for k := range d.Busy {
		if kindOf(k) == StartContainer {
			return true
		}
	}
	return false
}

// forgetRuns drops the memory of runs which the runtime no longer holds.
func (d *decision) forgetRuns() {
	held := map[string]bool{}
	for _, c := range d.Runtime.Containers {
		held[c.ID] = true
	}
	for id := range d.Memory.Runs {
		if !held[id] {
			delete(d.Memory.Runs, id)
		}
	}
}

// IsOver says whether the phase is a final one: the pod holds nothing of its node any more.
func IsOver(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
