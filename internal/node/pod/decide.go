// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Input is all that a decision depends on.
type Input struct {
	// Pod is the newest pod of the API, with the allocated resources in its spec.
	Pod *v1.Pod
	// Deleted is set when the API no longer has the pod.
	Deleted bool
	// Resize is the node's answer to a change of the pod's resources.
	Resize Resize
	// Old is the last decided status. For a new worker it is the API's.
	Old v1.PodStatus
	// Runtime is the pod as the runtime last had it.
	Runtime *runtime.Pod
	// Memory is what the worker knows and the runtime does not.
	Memory Memory
	// Assigned is set while CPUs, memory or devices are assigned to the pod.
	Assigned bool
	// Devices is the health of the devices of the pod and its claims, by container.
	Devices map[string][]v1.ResourceStatus
	// RecursiveReadOnly reports whether the runtime makes the pod's mounts read-only recursively, if the pod asks for it.
	RecursiveReadOnly bool
	// InFlight holds the keys of the actions that run.
	InFlight map[ActionKey]bool
	// HostIPs are the node's addresses, one for each IP family.
	HostIPs []string
	// RuntimeName is the scheme of container IDs, as in containerd://...
	RuntimeName string
	// MaxRestartDelay is the maximum of the back-off of restarts; 0 is the default, five minutes.
	MaxRestartDelay time.Duration
	Now             time.Time
}

// Output is a decision. Its caller carries it out in the order of the fields:
//
//  1. Memory replaces the memory of the input before anything else happens. The next decision
//     must start from it.
//  2. Status is visible to readers on the node at once, and is queued for the API. The caller does
//     not wait for the write, because an agent that ends before it makes the same decisions: it
//     reads the runtime, and Remember restores the rest. Writes of one pod keep their order. A
//     status that is still queued is replaced by a newer one.
//  3. Events are recorded, once.
//  4. If Stopping is set, running actions that only serve to start the pod are cancelled.
//  5. Probe and Running are compared with what is probed and rotated, and the difference is
//     applied. This comes before the actions, so that the liveness probes of a pod that stops do
//     not fail because of a StopContainer of the same decision.
//  6. Actions are launched together and run concurrently with each other and with the write of the
//     status. All actions of one output may overlap. An action that must follow another one is
//     decided only once the other's result is in the input. Therefore the API can show an older
//     state than the runtime has, never a newer one.
//
// Two steps wait for earlier ones. A deleted pod that is Finished is deleted from the API only after
// its status was written, so that a final status is never lost. A worker whose pod is Removed returns
// only when no action runs.
type Output struct {
	// Memory is the worker's next memory.
	Memory Memory
	// Status is the pod's whole status. It is written if it differs from the API's.
	Status v1.PodStatus
	// Finished reports whether nothing of the pod runs and its volumes and cgroup are released: a
	// deleted pod may leave the API once Status is written.
	Finished bool
	// Events are the events of this decision.
	Events []Event
	// Stopping reports whether the pod is to stop. It never becomes false again.
	Stopping bool
	// Probe holds the IDs of the containers to probe. While Stopping, only readiness is probed.
	Probe map[string]bool
	// Running holds the IDs of the running containers, whose logs are rotated.
	Running map[string]bool
	// Actions are the actions that should run now, also those that already do: the caller launches
	// an action only if none with its key runs.
	Actions []Action
	// Wake is when to decide again if nothing else happens; zero for never.
	Wake time.Time
	// Removed reports whether nothing of the pod is left on the node.
	Removed bool
}

// Event is an event to record on the pod or, if named, on one of its containers.
type Event struct {
	Container             string
	Type, Reason, Message string
}

// Refusal is why a pod fails whatever its containers do: the reason and the message of its status.
type Refusal struct {
	Reason, Message string
	// Detail is the reason of an infeasible resize in metrics.
	Detail string
}

// Memory is what a worker knows about its pod and cannot read from the runtime. It does not
// survive the agent: Remember rebuilds what matters from the API's status.
type Memory struct {
	// Rejected is set when the node did not admit the pod, or cannot attach its volumes.
	Rejected *Refusal
	// Expired is set once activeDeadlineSeconds are over.
	Expired *Refusal
	// Evicted is set once the node evicts the pod.
	Evicted *Eviction
	// VolumesReady is set by PrepareVolumes, ClaimsReady by PrepareClaims, Released by Release and
	// Cleaned by Clean. ClaimsReleased is set by Release even if it failed to release something else.
	VolumesReady   bool
	ClaimsReady    bool
	ClaimsReleased bool
	Released       bool
	// ContentDetached is set by DetachContent.
	ContentDetached bool
	Cleaned         bool
	// PreparedFor identifies the pod's metadata that its volumes show.
	PreparedFor string
	// StoppingSince is when the pod began to stop, or began again.
	StoppingSince time.Time
	// Interrupted is set if the runtime went away while a container was being stopped; see interrupt.
	Interrupted bool
	// Failures holds the last failure of each subject whose last attempt failed.
	Failures map[Subject]Failure
	// Runs holds what is known about single runs of containers, by container ID.
	Runs map[string]RunMemory
	// Stopped holds the IDs of the sandboxes that StopSandbox has stopped.
	Stopped map[string]bool
	// Resizing is set while a resize is in progress. ResizeGeneration is the generation of the
	// spec that requested it.
	Resizing         bool
	ResizeGeneration int64
	// Cgroup is the size of the pod's cgroup; nil if unknown.
	Cgroup *criconfig.Size
}

// Subject is the part of a pod that an attempt failed for. Retries are delayed for each subject
// on its own.
type Subject struct {
	part      string // empty for a container
	container string
}

// The subjects that are not containers.
var (
	OfVolumes = Subject{part: "volumes"} // preparing or releasing them
	OfClaims  = Subject{part: "claims"}
	OfSandbox = Subject{part: "sandbox"}
	OfResize  = Subject{part: "resize"}
)

// OfContainer returns the subject for the container with this name.
func OfContainer(name string) Subject { return Subject{container: name} }

// Failure is a failed attempt.
type Failure struct {
	Reason, Message string
	// Count is the number of consecutive failures.
	Count int
	// RetryAt is when to try again.
	RetryAt time.Time
}

// RunMemory is what the worker knows about one run of a container.
type RunMemory struct {
	// StartFailed is set if the runtime could not start the run and the failure was reported.
	StartFailed bool
	// Hooked is set once the postStart hook has succeeded.
	Hooked bool
	// HookFailed is set if the postStart hook failed: the run must be stopped.
	HookFailed bool
	// PreStopped is set once the preStop hook is over.
	PreStopped bool
	// Deadline is when the run gets SIGKILL; zero unless it is being stopped.
	Deadline time.Time
	// BackOffReported is set once the BackOff event after this run is recorded.
	BackOffReported bool
	// Size is the size that the worker gave the run last; nil if it never did.
	Size *criconfig.Size
	// Shown are the resources in the API's status when the worker began.
	Shown *v1.ResourceRequirements
	// The last results of the probes; nil if unknown.
	Startup, Liveness, Readiness *bool
}

// Prepared records that the pod's volumes are present and show the pod's current metadata.
func (m *Memory) Prepared(pod *v1.Pod) {
	m.VolumesReady, m.PreparedFor = true, shownMetadata(pod)
	delete(m.Failures, OfVolumes)
}

// clone copies the maps, so that a change of the copy leaves the original alone.
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

// Remember rebuilds a memory from the API's status. Containers that it shows as running have had
// their postStart hook, and stay started and ready until a probe reports another result. Runs that it
// shows as terminated have been reported.
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
		memory.Resizing, memory.ResizeGeneration = true, c.ObservedGeneration
		if c.Reason == v1.PodReasonError {
			memory.Failures[OfResize] = Failure{Reason: c.Reason, Message: c.Message}
		}
	}
	return memory
}

// Decide returns what to do next for a pod. It is a pure function: it has no side effects, and the
// same input always gives the same output.
func Decide(in Input) Output {
	d := &decision{Input: in}
	d.Memory = in.Memory.clone()
	d.out.Probe, d.out.Running = map[string]bool{}, map[string]bool{}
	d.ignoreInterruptedStarts()
	d.life = lifeOf(d.Pod, d.Runtime.Containers)
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

// decision is the state of one call of Decide.
type decision struct {
	Input
	life int // of the pod's containers; see lifeOf
	out  Output
}

func (d *decision) do(a Action) { d.out.Actions = append(d.out.Actions, a) }

func (d *decision) event(container, eventType, reason, message string) {
	d.out.Events = append(d.out.Events, Event{Container: container, Type: eventType, Reason: reason, Message: message})
}

// wakeAt requests another decision at t.
func (d *decision) wakeAt(t time.Time) {
	if d.out.Wake.IsZero() || t.Before(d.out.Wake) {
		d.out.Wake = t
	}
}

// ignoreInterruptedStarts treats a start that an agent crash interrupted as Created, so that it is
// retried and not counted as a failure. The runtime gives up on such a start: the run has exited
// without a start time, and no agent reported a failure.
func (d *decision) ignoreInterruptedStarts() {
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

// expire records in memory that the pod has exceeded its activeDeadlineSeconds.
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
	d.event("", v1.EventTypeNormal, d.Memory.Expired.Reason, d.Memory.Expired.Message)
}

// mustStop reports whether the pod is over or is to stop. Once true, it stays true.
func (d *decision) mustStop(phase v1.PodPhase) bool {
	return d.deleting() || !d.Memory.StoppingSince.IsZero() || d.Memory.Rejected != nil || d.ended() != nil ||
		IsOver(d.Pod.Status.Phase) || IsOver(phase) || d.allDone()
}

func (d *decision) deleting() bool { return d.Deleted || d.Pod.DeletionTimestamp != nil }

// allDone reports whether every app container has exited and will not be restarted. A running
// sidecar does not keep the pod (KEP-753).
func (d *decision) allDone() bool {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		latest, ok := d.Runtime.Latest(c.Name)
		if !ok || d.isInFlight(StartContainer, c.Name) || latest.State != runtime.Exited || d.isPast(latest) || d.shouldRestart(c, latest) {
			return false
		}
	}
	return true
}

// isInFlight reports whether an action runs.
func (d *decision) isInFlight(kind Kind, subject string) bool {
	return d.InFlight[ActionKey{kind, subject}]
}

// isStarting reports whether the start of any container runs.
func (d *decision) isStarting() bool {
	for key := range d.InFlight {
		if key.Kind == StartContainer {
			return true
		}
	}
	return false
}

// forgetRuns drops the memory of runs that the runtime no longer has.
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

// IsOver reports whether the phase is final: the pod uses no resources of its node any more.
func IsOver(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
