// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// minGrace is the least a container gets between the stop signal and KILL, also
// when its preStop hook took all of the grace period.
const minGrace = 2 * time.Second

// defaultGrace is the API's default terminationGracePeriodSeconds.
const defaultGrace = 30 * time.Second

// stop moves a pod which is over one step further: containers, then sandbox, then
// volumes and cgroup and, once the API has let go of the pod, everything else.
func (d *decision) stop() {
	if d.Memory.StoppingSince.IsZero() {
		d.Memory.StoppingSince = d.Now
	}
	if d.stopContainers() || d.starting() || d.busy(CreateSandbox, "") || d.busy(PrepareVolumes, "") || d.busy(ResizePod, "") {
		return
	}
	if !d.release() {
		return
	}
	d.out.Finished = true
	if d.Gone {
		d.remove()
	}
}

// stopContainers stops what runs and says whether anything still does.
func (d *decision) stopContainers() (running bool) {
	for _, run := range d.Runtime.Containers {
		if d.busy(StartContainer, run.Name) {
			continue // it will be dealt with once its start is over
		}
		switch run.State {
		case runtime.Running, runtime.Unknown:
			running = true
			d.kill(run, d.killDeadline(run, "", d.grace()), "")
			if run.State == runtime.Running {
				d.out.Running[run.ID] = true
				d.out.Probe[run.ID] = true
			}
		case runtime.Created:
			running = true
			d.do(Action{Kind: RemoveContainer, Container: run.Name, ID: run.ID})
		}
	}
	return running
}

// release stops the sandboxes and tears down volumes and cgroup, and says
// whether that is done.
func (d *decision) release() (done bool) {
	stopped := d.stopSandboxes(d.Runtime.Sandboxes)
	if stopped && !d.Memory.Released && d.mayRetry(volumesFailure) {
		d.do(Action{Kind: Release})
	}
	return stopped && d.Memory.Released
}

// stopSandboxes stops sandboxes and says whether all are. One that broke by itself is
// stopped too: it still holds its part of the network.
func (d *decision) stopSandboxes(sandboxes []runtime.Sandbox) (stopped bool) {
	stopped = true
	for _, s := range sandboxes {
		if !d.Memory.Stopped[s.ID] {
			d.do(Action{Kind: StopSandbox, ID: s.ID})
			stopped = false
		}
	}
	return stopped
}

// remove removes the last traces of a pod that has left the API. Until then its
// containers stay, for their logs.
func (d *decision) remove() {
	if len(d.Runtime.Sandboxes)+len(d.Runtime.Containers) == 0 {
		if d.out.Removed = d.Memory.Cleaned; !d.out.Removed {
			d.do(Action{Kind: Clean})
		}
		return
	}
	for _, s := range d.Runtime.Sandboxes {
		d.do(Action{Kind: RemoveSandbox, ID: s.ID})
	}
	if len(d.Runtime.Sandboxes) > 0 {
		return
	}
	for _, run := range d.Runtime.Containers {
		d.do(Action{Kind: RemoveContainer, Container: run.Name, ID: run.ID})
	}
}

// kill stops one running container by its deadline: preStop hook first, then, for
// a sidecar, its turn, then the stop signal. It is told once.
func (d *decision) kill(run runtime.Container, deadline time.Time, message string) {
	memory := d.Memory.Runs[run.ID]
	if memory.Deadline.IsZero() {
		if message == "" {
			message = "Stopping container " + run.Name
		}
		d.tell(run.Name, v1.EventTypeNormal, "Killing", message)
	}
	memory.Deadline = deadline
	d.Memory.Runs[run.ID] = memory

	c := containerOf(d.Pod, run.Name)
	if hasPreStop(c) && !memory.PreStopped && d.Now.Before(deadline) && run.State == runtime.Running {
		d.do(Action{Kind: PreStop, Container: run.Name, ID: run.ID, Deadline: deadline})
		return
	}
	if d.out.Stopping && !d.sidecarTurn(run.Name) && d.Now.Before(deadline) {
		d.wakeAt(deadline)
		return
	}
	d.do(Action{Kind: StopContainer, Container: run.Name, ID: run.ID, Deadline: deadline})
}

// killDeadline is when a container that is being stopped gets KILL: the grace
// period after its stop began. A shorter grace period moves it forward, never back.
func (d *decision) killDeadline(run runtime.Container, probe ProbeKind, grace time.Duration) time.Time {
	if own := probeGrace(containerOf(d.Pod, run.Name), probe); own != nil {
		grace = time.Duration(*own) * time.Second
	}
	since := d.Now
	if !d.Memory.StoppingSince.IsZero() {
		since = d.Memory.StoppingSince
	}
	deadline := since.Add(grace)
	if known := d.Memory.Runs[run.ID].Deadline; !known.IsZero() && known.Before(deadline) {
		return known
	}
	return deadline
}

// probeGrace is the probe's own terminationGracePeriodSeconds.
func probeGrace(c *v1.Container, kind ProbeKind) *int64 {
	switch {
	case c == nil:
		return nil
	case kind == Liveness && c.LivenessProbe != nil:
		return c.LivenessProbe.TerminationGracePeriodSeconds
	case kind == Startup && c.StartupProbe != nil:
		return c.StartupProbe.TerminationGracePeriodSeconds
	}
	return nil
}

// grace is the grace period of a pod which is over: what its deletion asks for, or
// nothing when the API has already let go of it (forced deletion).
func (d *decision) grace() time.Duration {
	switch {
	case d.Gone:
		return 0
	case d.Pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*d.Pod.DeletionGracePeriodSeconds) * time.Second
	}
	return d.specGrace()
}

func (d *decision) specGrace() time.Duration {
	if seconds := d.Pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultGrace
}

// sidecarTurn says whether a container may be stopped now: app containers at once,
// sidecars after them, the last started first (KEP-753).
func (d *decision) sidecarTurn(name string) bool {
	index, sidecar := sidecarNamed(d.Pod, name)
	if !sidecar {
		return true
	}
	for i := range d.Pod.Spec.Containers {
		if d.running(d.Pod.Spec.Containers[i].Name) {
			return false
		}
	}
	for i := index + 1; i < len(d.Pod.Spec.InitContainers); i++ {
		if c := &d.Pod.Spec.InitContainers[i]; IsSidecar(c) && d.running(c.Name) {
			return false
		}
	}
	return true
}

// running says whether a container runs, or may in a moment.
func (d *decision) running(name string) bool {
	run, ok := d.Runtime.Latest(name)
	return d.busy(StartContainer, name) || ok && (run.State == runtime.Running || run.State == runtime.Unknown)
}

// anythingRuns says whether the pod could still have a running process.
func (d *decision) anythingRuns() bool {
	for _, run := range d.Runtime.Containers {
		if run.State == runtime.Running || run.State == runtime.Unknown {
			return true
		}
	}
	return d.starting()
}

func hasPreStop(c *v1.Container) bool {
	return c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil
}

// problemWith says what is wrong with a ready sandbox, or nothing.
func problemWith(pod *v1.Pod, sandbox runtime.Sandbox) string {
	if !pod.Spec.HostNetwork && len(sandbox.IPs) == 0 {
		return "pod sandbox has no IP address"
	}
	return ""
}

// sandboxProblem is the message of PodReadyToStartContainers while it is false.
func (d *decision) sandboxProblem() string {
	ready := 0
	for _, s := range d.Runtime.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	switch {
	case len(d.Runtime.Sandboxes) == 0:
		return "no pod sandbox exists"
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled"
	case !d.Runtime.Sandboxes[0].Ready:
		return "pod sandbox is not ready"
	}
	return problemWith(d.Pod, d.Runtime.Sandboxes[0])
}
