// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// run decides the next steps of a pod that should run: volumes, devices, then the sandbox (a pod
// without its volumes and devices gets no network), then init containers in order, then all app containers.
func (d *decision) run() {
	d.prepareVolumes()
	if !d.Memory.VolumesReady {
		if sandbox, ok := d.Runtime.ReadySandbox(); ok {
			// Started by an earlier agent, which may have ended during a resize: the status must not show it as complete.
			d.noticeResize(sandbox)
			d.watchRunning(sandbox)
		}
		return
	}
	sandbox, ok := d.ensureSandbox()
	if !ok {
		return
	}
	d.prune(sandbox)
	if d.endPastLives() {
		d.watchRunning(sandbox)
		return
	}
	d.resize(sandbox)
	d.ephemeralContainers(sandbox)
	if d.initContainers(sandbox) {
		d.appContainers(sandbox)
	}
	d.watchRunning(sandbox)
}

// prepareVolumes prepares volumes again when they show metadata of the pod that has changed.
func (d *decision) prepareVolumes() {
	if d.Memory.VolumesReady && d.Memory.PreparedFor == shownMetadata(d.Pod) {
		return
	}
	if d.mayRetry(OfVolumes) {
		d.do(Action{Kind: PrepareVolumes})
	}
}

// mayRetry reports whether the pause after the subject's last failure is over.
func (d *decision) mayRetry(of Subject) bool {
	failure, failed := d.Memory.Failures[of]
	if failed && d.Now.Before(failure.RetryAt) {
		d.wakeAt(failure.RetryAt)
		return false
	}
	return true
}

// ensureSandbox returns the pod's sandbox once a working one exists. A broken sandbox is replaced,
// and its containers are stopped first.
func (d *decision) ensureSandbox() (runtime.Sandbox, bool) {
	sandbox, ready := d.Runtime.ReadySandbox()
	if ready && problemOf(d.Pod, sandbox) == "" {
		d.stopSandboxes(d.Runtime.Sandboxes[1:])
		return sandbox, true
	}
	if d.isInFlight(CreateSandbox, "") {
		d.do(Action{Kind: CreateSandbox})
		return sandbox, false
	}
	if !d.clearBrokenSandboxes() || !d.mayRetry(OfSandbox) {
		return sandbox, false
	}
	if !d.claimsReady() {
		return sandbox, false
	}
	attempt := uint32(0)
	if len(d.Runtime.Sandboxes) > 0 {
		attempt = d.Runtime.Sandboxes[0].Attempt + 1
	}
	d.do(Action{Kind: CreateSandbox, Attempt: attempt})
	return sandbox, false
}

// claimsReady reports whether the devices of the pod's claims are prepared, and prepares them. Once the
// pod has a sandbox, they are: a new agent does not prepare them again.
func (d *decision) claimsReady() bool {
	if !usesClaims(d.Pod) || d.Memory.ClaimsReady {
		return true
	}
	if d.mayRetry(OfClaims) {
		d.do(Action{Kind: PrepareClaims})
	}
	return false
}

// clearBrokenSandboxes stops the containers and sandboxes that a new sandbox would replace, and
// reports whether all are stopped.
func (d *decision) clearBrokenSandboxes() (cleared bool) {
	cleared = true
	for _, c := range d.Runtime.Containers {
		switch c.State {
		case runtime.Running, runtime.Unknown:
			d.kill(c, d.killDeadline(c, "", d.specGrace()), "")
			cleared = false
		case runtime.Created:
			d.do(Action{Kind: RemoveContainer, Container: c.Name, ID: c.ID})
			cleared = false
		}
	}
	cleared = cleared && d.stopSandboxes(d.Runtime.Sandboxes)
	if cleared && len(d.Runtime.Sandboxes) > 0 && d.Memory.Failures[OfSandbox].Reason == "" {
		d.event("", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	return cleared
}

// initContainers decides the next step of initialization and reports whether it is complete. It
// continues at the last init container that has run in this sandbox. The sidecars before that one
// are only kept running.
func (d *decision) initContainers(sandbox runtime.Sandbox) (complete bool) {
	init := d.Pod.Spec.InitContainers
	at := d.initPosition(sandbox)
	for i := range min(at, len(init)) {
		if IsSidecar(&init[i]) {
			d.keepRunning(&init[i], sandbox)
		}
	}
	for ; at < len(init); at++ {
		if !d.initStep(&init[at], sandbox) {
			return false
		}
	}
	return true
}

// initPosition returns the index of the last init container that has run in the sandbox, or the
// number of init containers once an app container has.
func (d *decision) initPosition(sandbox runtime.Sandbox) int {
	for i := range d.Pod.Spec.Containers {
		if _, ok := d.runIn(sandbox, d.Pod.Spec.Containers[i].Name); ok {
			return len(d.Pod.Spec.InitContainers)
		}
	}
	for i := len(d.Pod.Spec.InitContainers) - 1; i > 0; i-- {
		if _, ok := d.runIn(sandbox, d.Pod.Spec.InitContainers[i].Name); ok {
			return i
		}
	}
	return 0
}

// initStep makes one init container run and reports whether the next one may start.
func (d *decision) initStep(c *v1.Container, sandbox runtime.Sandbox) (passed bool) {
	run, ok := d.runIn(sandbox, c.Name)
	if IsSidecar(c) {
		d.keepRunning(c, sandbox)
		return ok && run.State == runtime.Running && d.isStarted(c, run)
	}
	if ok && run.State == runtime.Exited && run.ExitCode == 0 {
		return true
	}
	d.keepRunning(c, sandbox)
	return false
}

// appContainers starts all app containers. As in the kubelet, those after a container with a
// postStart hook wait for the end of the hook; users rely on that.
func (d *decision) appContainers(sandbox runtime.Sandbox) {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		d.keepRunning(c, sandbox)
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
			continue
		}
		run, ok := d.runIn(sandbox, c.Name)
		if !ok || run.State == runtime.Created || (run.State == runtime.Running && !d.isHooked(c, run)) {
			d.checkFrom(i+1, sandbox)
			return
		}
	}
}

// checkFrom checks the running app containers from an index on, whose start would have to wait.
func (d *decision) checkFrom(from int, sandbox runtime.Sandbox) {
	for i := from; i < len(d.Pod.Spec.Containers); i++ {
		c := &d.Pod.Spec.Containers[i]
		if run, ok := d.runIn(sandbox, c.Name); ok && run.State == runtime.Running {
			d.check(c, run)
		}
	}
}

// ephemeralContainers starts each ephemeral container once; they are never restarted.
func (d *decision) ephemeralContainers(sandbox runtime.Sandbox) {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		run, ran := d.Runtime.Latest(c.Name)
		switch {
		case d.isInFlight(StartContainer, c.Name):
			d.do(Action{Kind: StartContainer, Container: c.Name})
		case ran && run.State == runtime.Created:
			d.do(Action{Kind: RemoveContainer, Container: c.Name, ID: run.ID})
		case !ran && !d.ranBefore(c.Name):
			d.start(c, 0, 0)
		}
	}
}

// keepRunning starts, restarts or checks one container.
func (d *decision) keepRunning(c *v1.Container, sandbox runtime.Sandbox) {
	if d.isInFlight(StartContainer, c.Name) {
		d.do(Action{Kind: StartContainer, Container: c.Name})
		return
	}
	run, ran := d.Runtime.Latest(c.Name)
	switch {
	case !ran:
		d.start(c, d.nextAttempt(c.Name), 0)
	case run.State == runtime.Created:
		// The agent that created it ended before it started it.
		d.do(Action{Kind: RemoveContainer, Container: c.Name, ID: run.ID})
	case run.State == runtime.Unknown:
		d.kill(run, d.killDeadline(run, "", 0), fmt.Sprintf("Container is in %q state, try killing it before restart", run.State))
	case run.State == runtime.Running:
		d.check(c, run)
	case run.SandboxID != sandbox.ID && isInit(d.Pod, c.Name), d.isPast(run):
		// In a new sandbox, initialization starts over; in a new life, all does.
		d.start(c, run.Attempt+1, 0)
	case d.shouldRestart(c, run):
		d.restart(c, run)
	}
}

// restart starts the next run once the back-off after the last run is over.
func (d *decision) restart(c *v1.Container, ended runtime.Container) {
	delay, next := d.restartDelay(c, ended)
	if at := ended.FinishedAt.Add(delay); d.Now.Before(at) {
		d.wakeAt(at)
		d.reportBackOff(c, ended)
		return
	}
	d.start(c, ended.Attempt+1, next)
}

// reportBackOff records the BackOff event, once for each run.
func (d *decision) reportBackOff(c *v1.Container, ended runtime.Container) {
	run := d.Memory.Runs[ended.ID]
	if run.BackOffReported {
		return
	}
	run.BackOffReported = true
	d.Memory.Runs[ended.ID] = run
	d.event(c.Name, v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, criconfig.FullName(d.Pod)))
}

func (d *decision) start(c *v1.Container, attempt uint32, backOff time.Duration) {
	if d.mayRetry(OfContainer(c.Name)) {
		d.do(Action{Kind: StartContainer, Container: c.Name, Attempt: attempt, BackOff: backOff, Life: d.life})
	}
}

// check stops a running container whose definition changed, whose postStart hook failed or whose
// probe failed, and runs its postStart hook.
func (d *decision) check(c *v1.Container, run runtime.Container) {
	memory := d.Memory.Runs[run.ID]
	switch {
	case changed(d.Pod, c, run) && criconfig.SameImage(run.Hash, criconfig.Hash(d.Pod, c)):
		d.kill(run, d.killDeadline(run, "", d.specGrace()), fmt.Sprintf("Container %s resize requires restart", c.Name))
	case changed(d.Pod, c, run):
		d.kill(run, d.killDeadline(run, "", d.specGrace()), fmt.Sprintf("%s %s definition changed%s", d.title(c), c.Name, ", will be restarted"))
	case memory.HookFailed:
		d.kill(run, d.killDeadline(run, "", d.specGrace()), "FailedPostStartHook")
	case isFalse(memory.Liveness):
		d.kill(run, d.killDeadline(run, Liveness, d.specGrace()), fmt.Sprintf("%s %s failed liveness probe%s", d.title(c), c.Name, d.restartNote(c)))
	case isFalse(memory.Startup):
		d.kill(run, d.killDeadline(run, Startup, d.specGrace()), fmt.Sprintf("%s %s failed startup probe%s", d.title(c), c.Name, d.restartNote(c)))
	case !d.isHooked(c, run):
		d.do(Action{Kind: PostStart, Container: c.Name, ID: run.ID})
	}
}

func (d *decision) title(c *v1.Container) string {
	if isInit(d.Pod, c.Name) {
		return "Init container"
	}
	return "Container"
}

// restartNote is the end of a Killing event's message.
func (d *decision) restartNote(c *v1.Container) string {
	if isInit(d.Pod, c.Name) || neverRestarts(d.Pod, c) {
		return ""
	}
	return ", will be restarted"
}

// isHooked reports whether the run's postStart hook has succeeded, if the container has one.
func (d *decision) isHooked(c *v1.Container, run runtime.Container) bool {
	return c.Lifecycle == nil || c.Lifecycle.PostStart == nil || d.Memory.Runs[run.ID].Hooked
}

// isStarted reports whether a running container counts as started: its postStart hook and its
// startup probe, if any, have succeeded.
func (d *decision) isStarted(c *v1.Container, run runtime.Container) bool {
	if !d.isHooked(c, run) {
		return false
	}
	return c.StartupProbe == nil || isTrue(d.Memory.Runs[run.ID].Startup)
}

// isReady reports whether a running container is started and its readiness probe, if any, succeeds.
func (d *decision) isReady(c *v1.Container, run runtime.Container) bool {
	return d.isStarted(c, run) && (c.ReadinessProbe == nil || isTrue(d.Memory.Runs[run.ID].Readiness))
}

// runIn returns the container's newest run if it is in the sandbox, and not of an earlier life.
func (d *decision) runIn(sandbox runtime.Sandbox, name string) (runtime.Container, bool) {
	run, ok := d.Runtime.Latest(name)
	return run, ok && run.SandboxID == sandbox.ID && !d.isPast(run)
}

// nextAttempt returns the number of the next run of a container that the runtime does not have: 0
// or, if the runtime lost its runs, one more than the API's restart count.
func (d *decision) nextAttempt(name string) uint32 {
	old := statusNamed(d.Pod.Status, name)
	if old == nil {
		return 0
	}
	last := old.LastTerminationState.Terminated
	if old.State.Waiting == nil || last != nil && last.ContainerID == old.ContainerID {
		return uint32(old.RestartCount) + 1
	}
	return uint32(old.RestartCount) // the last run was created and never started
}

// ranBefore reports whether the API's status shows a run of the container.
func (d *decision) ranBefore(name string) bool {
	old := statusNamed(d.Pod.Status, name)
	return old != nil && old.ContainerID != ""
}

// watchRunning adds the sandbox's running containers to Output.Probe and Output.Running.
func (d *decision) watchRunning(sandbox runtime.Sandbox) {
	for _, run := range d.Runtime.Containers {
		c := containerOf(d.Pod, run.Name)
		if c == nil || run.State != runtime.Running || run.SandboxID != sandbox.ID {
			continue
		}
		d.out.Running[run.ID] = true
		if d.isHooked(c, run) {
			d.out.Probe[run.ID] = true
		}
	}
}

// prune keeps two runs of each container, the newest and the one before it, and the sandboxes of
// these runs. It removes all others.
func (d *decision) prune(current runtime.Sandbox) {
	kept := map[string]int{}
	holds := map[string]bool{current.ID: true}
	for _, run := range d.Runtime.Containers {
		kept[run.Name]++
		if kept[run.Name] <= 2 || run.State == runtime.Running {
			holds[run.SandboxID] = true
			continue
		}
		d.do(Action{Kind: RemoveContainer, Container: run.Name, ID: run.ID})
	}
	for _, s := range d.Runtime.Sandboxes {
		if !s.Ready && !holds[s.ID] {
			d.do(Action{Kind: RemoveSandbox, ID: s.ID})
		}
	}
}

func isInit(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }
