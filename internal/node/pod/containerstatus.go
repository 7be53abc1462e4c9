// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// containerType is one of the three lists of containers of a pod.
type containerType int

const (
	initContainer containerType = iota
	appContainer
	ephemeralContainer
)

// The reasons of container states.
const (
	reasonCreating      = "ContainerCreating"
	reasonInitializing  = "PodInitializing"
	reasonCrashLoop     = "CrashLoopBackOff"
	reasonStatusUnknown = "ContainerStatusUnknown"
	reasonCompleted     = "Completed"
	reasonPostStartHook = "PostStartHookError"
	reasonCreateConfig  = "CreateContainerConfigError"
	reasonCreate        = "CreateContainerError"
	reasonRun           = "RunContainerError"
)

// maxMessages is the limit, in bytes, for all termination messages of a pod together.
const maxMessages = 12 * 1024

// containerStatuses computes the statuses of one list of containers: init containers in the order
// of the spec, the others sorted by name.
func (d *decision) containerStatuses(specs []v1.Container, kind containerType) []v1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	statuses := make([]v1.ContainerStatus, 0, len(specs))
	for i := range specs {
		statuses = append(statuses, d.containerStatus(&specs[i], kind))
	}
	if kind != initContainer {
		slices.SortFunc(statuses, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	}
	return statuses
}

func (d *decision) containerStatus(c *v1.Container, kind containerType) v1.ContainerStatus {
	old := statusNamed(d.Old, c.Name)
	runs := d.Runtime.Runs(c.Name)
	if d.showsReplaced(c, runs, old) {
		return *old
	}
	var s v1.ContainerStatus
	if len(runs) == 0 {
		s = d.statusWithoutRuns(c, kind, old)
	} else {
		s = d.statusOfRuns(c, runs, old)
	}
	if s.State.Terminated == nil || len(runs) > 0 {
		d.setWaiting(c, kind, runs, &s)
	}
	s.VolumeMounts = d.mountStatuses(c, old, s.ContainerID)
	if kind == appContainer {
		s.AllocatedResourcesStatus = d.Devices[c.Name]
	}
	d.setReadiness(c, kind, runs, &s)
	return s
}

// statusWithoutRuns returns the status of a container without a run in the runtime: it has not been
// started, or the runtime lost its runs.
func (d *decision) statusWithoutRuns(c *v1.Container, kind containerType, old *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, State: d.notStarted()}
	switch {
	case old != nil && old.State.Terminated != nil:
		return *old
	case old == nil:
	case old.State.Running != nil:
		s.RestartCount = old.RestartCount
		s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			Reason:   reasonStatusUnknown,
			Message:  "The container could not be located when the pod was deleted.  The container used to be Running",
			ExitCode: 137,
		}
		if !d.deleting() {
			s.RestartCount++
		}
	default:
		s.RestartCount, s.LastTerminationState = old.RestartCount, old.LastTerminationState
	}
	if kind == initContainer && !IsSidecar(c) && d.anyAppRun() {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason:  reasonCompleted,
			Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
		}}
	}
	return s
}

func (d *decision) anyAppRun() bool {
	for i := range d.Pod.Spec.Containers {
		if _, ok := d.Runtime.Latest(d.Pod.Spec.Containers[i].Name); ok {
			return true
		}
	}
	return false
}

// notStarted returns the state of a container that has not been started.
func (d *decision) notStarted() v1.ContainerState {
	reason := reasonCreating
	if len(d.Pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

// statusOfRuns returns the status of a container with runs in the runtime.
func (d *decision) statusOfRuns(c *v1.Container, runs []runtime.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	run := runs[0]
	s := v1.ContainerStatus{
		Name:         c.Name,
		Image:        run.Image,
		ImageID:      run.ImageID,
		ContainerID:  d.containerID(run),
		RestartCount: int32(run.Attempt),
		State:        d.stateOf(c, run),
		User:         userOf(run),
	}
	s.Resources = d.actualResources(c, run)
	s.AllocatedResources = c.Resources.Requests
	if s.Image == "" {
		s.Image = c.Image
	}
	switch {
	case len(runs) > 1 && runs[1].State == runtime.Exited:
		s.LastTerminationState = d.stateOf(c, runs[1])
	case old != nil && old.ContainerID == s.ContainerID:
		s.LastTerminationState = old.LastTerminationState
	case old != nil && old.State.Terminated != nil:
		s.LastTerminationState = old.State
	case old != nil:
		s.LastTerminationState = old.LastTerminationState
	}
	return s
}

func (d *decision) containerID(run runtime.Container) string {
	return d.RuntimeName + "://" + run.ID
}

func (d *decision) stateOf(c *v1.Container, run runtime.Container) v1.ContainerState {
	switch run.State {
	case runtime.Running:
		if !d.isHooked(c, run) {
			return d.notStarted() // Running means that the postStart hook is over
		}
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: toSeconds(run.StartedAt)}}
	case runtime.Exited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    run.ExitCode,
			Reason:      run.Reason,
			Message:     d.truncate(run.Message),
			StartedAt:   toSeconds(run.StartedAt),
			FinishedAt:  toSeconds(run.FinishedAt),
			ContainerID: d.containerID(run),
		}}
	}
	return d.notStarted()
}

// truncate cuts a termination message: all containers of a pod share maxMessages evenly.
func (d *decision) truncate(message string) string {
	spec := &d.Pod.Spec
	room := maxMessages / (len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers))
	return message[:min(len(message), room)]
}

// setWaiting sets the waiting state, with its reason, of a container that should run and cannot be
// started now.
func (d *decision) setWaiting(c *v1.Container, kind containerType, runs []runtime.Container, s *v1.ContainerStatus) {
	past := d.isPastRun(c.Name)
	if d.deleting() || kind == initContainer && succeeded(s.State) && !past {
		return
	}
	failure, failed := d.Memory.Failures[OfContainer(c.Name)]
	var waiting *v1.ContainerStateWaiting
	switch {
	case len(runs) == 0 && failed:
		waiting = &v1.ContainerStateWaiting{Reason: failure.Reason, Message: failure.Message}
	case past && failed:
		waiting = &v1.ContainerStateWaiting{Reason: failure.Reason, Message: failure.Message}
	case past:
		waiting = &v1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: messageRestartingAll}
	case len(runs) == 0 || runs[0].State != runtime.Exited || kind == ephemeralContainer || !d.shouldRestart(c, runs[0]):
		return
	default:
		delay, _ := d.restartDelay(c, runs[0])
		switch {
		case delay > 0 && d.Now.Before(runs[0].FinishedAt.Add(delay)):
			waiting = &v1.ContainerStateWaiting{
				Reason:  reasonCrashLoop,
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, c.Name, criconfig.FullName(d.Pod)),
			}
		case failed:
			waiting = &v1.ContainerStateWaiting{Reason: failure.Reason, Message: failure.Message}
		case d.isReplaced(c, runs[0]) && d.Memory.StoppingSince.IsZero() && d.ended() == nil && !IsOver(d.Pod.Status.Phase):
			// The API does not let a container run again that it knows to have ended for good.
			waiting = &v1.ContainerStateWaiting{Reason: reasonCreating}
		default:
			return
		}
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: waiting}
}

// setReadiness sets the fields started and ready.
func (d *decision) setReadiness(c *v1.Container, kind containerType, runs []runtime.Container, s *v1.ContainerStatus) {
	if kind == ephemeralContainer {
		return
	}
	running := len(runs) > 0 && runs[0].State == runtime.Running
	s.Started = new(running && d.isStarted(c, runs[0]))
	if kind == initContainer && !IsSidecar(c) {
		s.Ready = succeeded(s.State)
		return
	}
	s.Ready = running && d.isReady(c, runs[0])
}

func userOf(run runtime.Container) *v1.ContainerUser {
	if run.User == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: run.User.UID, GID: run.User.GID, SupplementalGroups: run.User.SupplementalGroups,
	}}
}

// toSeconds truncates a time to whole seconds, the precision of the API.
func toSeconds(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }
