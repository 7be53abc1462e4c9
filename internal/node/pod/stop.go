// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// minGrace is the shortest time between the stop signal and SIGKILL, even if the preStop hook took
// all of the grace period.
const minGrace = 2 * time.Second

// defaultGrace is the API's default terminationGracePeriodSeconds.
const defaultGrace = 30 * time.Second

// stop decides the next steps of a pod that is to stop: containers, then sandboxes, then claims, volumes
// and cgroup and, once the API no longer has the pod, everything else.
func (d *decision) stop() {
	if d.Memory.StoppingSince.IsZero() || d.Memory.Interrupted {
		d.Memory.StoppingSince, d.Memory.Interrupted = d.Now, false
	}
	if d.stopContainers() || d.isStarting() || d.isInFlight(ResizePod, "") ||
		d.isInFlight(PrepareVolumes, "") || d.isInFlight(PrepareClaims, "") || d.isInFlight(CreateSandbox, "") {
		return
	}
	if !d.release() {
		return
	}
	d.out.Finished = true
	if d.Deleted {
		d.remove()
	}
}

// interrupt makes the next decision stop the containers from the start, with their preStop hooks and the whole grace period,
// because the runtime ended in the middle (Kubernetes documentation, "Termination of Pods"). A new agent does the same: it
// remembers no deadline.
func (m *Memory) interrupt() {
	m.Interrupted = true
	for id, run := range m.Runs {
		run.Deadline, run.PreStopped = time.Time{}, false
		m.Runs[id] = run
	}
}

// stopContainers stops the running containers and reports whether any still runs.
func (d *decision) stopContainers() (running bool) {
	for _, run := range d.Runtime.Containers {
		if d.isInFlight(StartContainer, run.Name) {
			continue // it is stopped once its start is over
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

// release stops the sandboxes, then gives up claims, volumes and cgroup, and reports whether all of that
// is done.
func (d *decision) release() (done bool) {
	stopped := d.stopSandboxes(d.Runtime.Sandboxes)
	if !stopped && !d.Memory.ContentDetached {
		d.do(Action{Kind: DetachContent})
	}
	if stopped && !d.Memory.Released && d.mayRetry(OfVolumes) {
		d.do(Action{Kind: Release})
	}
	return stopped && d.Memory.Released
}

// stopSandboxes stops sandboxes and reports whether all are stopped. One that is no longer ready is
// stopped as well, because it still holds its part of the network.
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

// remove removes what is left of a pod that the API no longer has. Until then its containers stay,
// for their logs.
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

// kill stops a running container by its deadline: the preStop hook, then the stop signal. A sidecar
// waits for its turn in between. The Killing event is recorded once.
func (d *decision) kill(run runtime.Container, deadline time.Time, message string) {
	memory := d.Memory.Runs[run.ID]
	if memory.Deadline.IsZero() {
		if message == "" {
			message = "Stopping container " + run.Name
		}
		d.event(run.Name, v1.EventTypeNormal, "Killing", message)
	}
	memory.Deadline = deadline
	d.Memory.Runs[run.ID] = memory

	c := containerOf(d.Pod, run.Name)
	if hasPreStop(c) && !memory.PreStopped && d.Now.Before(deadline) && run.State == runtime.Running {
		d.do(Action{Kind: PreStop, Container: run.Name, ID: run.ID, Deadline: deadline})
		return
	}
	if d.out.Stopping && !d.mayStop(run.Name) && d.Now.Before(deadline) {
		d.wakeAt(deadline)
		return
	}
	d.do(Action{Kind: StopContainer, Container: run.Name, ID: run.ID, Deadline: deadline})
}

// killDeadline returns when a container gets SIGKILL: the grace period after it began to stop. A
// new grace period can make the deadline earlier, never later, unless the stop was interrupted.
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

// probeGrace returns the terminationGracePeriodSeconds of the failed probe, if it has its own.
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

// grace returns the grace period of a pod that is to stop: that of its eviction or deletion, or 0 if the API no
// longer has the pod (a forced deletion).
func (d *decision) grace() time.Duration {
	switch {
	case d.Deleted:
		return 0
	case d.Pod.DeletionGracePeriodSeconds != nil:
		return d.evictionGrace(time.Duration(*d.Pod.DeletionGracePeriodSeconds) * time.Second)
	}
	return d.evictionGrace(d.specGrace())
}

// specGrace returns the grace period in the pod's spec.
func (d *decision) specGrace() time.Duration {
	if seconds := d.Pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultGrace
}

// mayStop reports whether it is the container's turn to stop: app containers stop at once, sidecars
// after them in reverse order (KEP-753).
func (d *decision) mayStop(name string) bool {
	index, sidecar := sidecarNamed(d.Pod, name)
	if !sidecar {
		return true
	}
	for i := range d.Pod.Spec.Containers {
		if d.isRunning(d.Pod.Spec.Containers[i].Name) {
			return false
		}
	}
	for i := index + 1; i < len(d.Pod.Spec.InitContainers); i++ {
		if c := &d.Pod.Spec.InitContainers[i]; IsSidecar(c) && d.isRunning(c.Name) {
			return false
		}
	}
	return true
}

// isRunning reports whether a container runs or is being started.
func (d *decision) isRunning(name string) bool {
	run, ok := d.Runtime.Latest(name)
	return d.isInFlight(StartContainer, name) || ok && (run.State == runtime.Running || run.State == runtime.Unknown)
}

// anythingRuns reports whether the pod may have a running process.
func (d *decision) anythingRuns() bool {
	for _, run := range d.Runtime.Containers {
		if run.State == runtime.Running || run.State == runtime.Unknown {
			return true
		}
	}
	return d.isStarting()
}

func hasPreStop(c *v1.Container) bool {
	return c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil
}

// problemOf returns what is wrong with a ready sandbox, or "".
func problemOf(pod *v1.Pod, sandbox runtime.Sandbox) string {
	if !pod.Spec.HostNetwork && len(sandbox.IPs) == 0 {
		return "pod sandbox has no IP address"
	}
	return ""
}

// sandboxProblem returns the message of PodReadyToStartContainers if the condition is false, or "".
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
	return problemOf(d.Pod, d.Runtime.Sandboxes[0])
}
