// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// run moves a pod which should run one step further: volumes, then the sandbox (a pod whose
// volumes are missing gets neither address nor network), then init containers in order, then
// app containers together.
func (d *decision) run() {
	d.prepareVolumes()
	if !d.Memory.VolumesReady {
		if sandbox, ok := d.Runtime.ReadySandbox(); ok {
			d.watchRunning(sandbox) // of an agent that went before
		}
		return
	}
	sandbox, ok := d.ensureSandbox()
	if !ok {
		return
	}
	d.prune(sandbox)
	d.resize(sandbox)
	d.ephemeralContainers(sandbox)
	if d.initContainers(sandbox) {
		d.appContainers(sandbox)
	}
	d.watchRunning(sandbox)
}

// prepareVolumes also prepares again when volumes show the pod's own metadata and
// that changed.
func (d *decision) prepareVolumes() {
	if d.Memory.VolumesReady && d.Memory.PreparedFor == shownMetadata(d.Pod) {
		return
	}
	if d.mayRetry(volumesFailure) {
		d.do(Action{Kind: PrepareVolumes})
	}
}

// mayRetry says whether the pause after the last failure is over.
func (d *decision) mayRetry(what string) bool {
	failure, failed := d.Memory.Failures[what]
	if failed && d.Now.Before(failure.RetryAt) {
		d.wakeAt(failure.RetryAt)
		return false
	}
	return true
}

// ensureSandbox returns the pod's sandbox once there is a good one. A sandbox that
// broke takes its containers along, and a new one is made.
func (d *decision) ensureSandbox() (runtime.Sandbox, bool) {
	sandbox, ready := d.Runtime.ReadySandbox()
	if ready && problemWith(d.Pod, sandbox) == "" {
		d.stopSandboxes(d.Runtime.Sandboxes[1:])
		return sandbox, true
	}
	if d.busy(CreateSandbox, "") {
		d.do(Action{Kind: CreateSandbox})
		return sandbox, false
	}
	if !d.clearBrokenSandboxes() || !d.mayRetry(sandboxFailure) {
		return sandbox, false
	}
	attempt := uint32(0)
	if len(d.Runtime.Sandboxes) > 0 {
		attempt = d.Runtime.Sandboxes[0].Attempt + 1
	}
	d.do(Action{Kind: CreateSandbox, Attempt: attempt})
	return sandbox, false
}

// clearBrokenSandboxes stops containers and sandboxes that are in the way of a new
// sandbox, and says whether none is.
func (d *decision) clearBrokenSandboxes() bool {
	clear := true
	for _, c := range d.Runtime.Containers {
		switch c.State {
		case runtime.Running, runtime.Unknown:
			d.kill(c, d.killDeadline(c, "", d.specGrace()), "")
			clear = false
		case runtime.Created:
			d.do(Action{Kind: RemoveContainer, Container: c.Name, ID: c.ID})
			clear = false
		}
	}
	clear = clear && d.stopSandboxes(d.Runtime.Sandboxes)
	if clear && len(d.Runtime.Sandboxes) > 0 && len(d.Memory.Failures[sandboxFailure].Reason) == 0 {
		d.tell("", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	return clear
}

// initContainers moves initialization on and says whether it is complete. The
// furthest init container with a run in this sandbox is where it stands; sidecars before it
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

// initPosition is the index of the furthest init container which has run in the sandbox, or
// past all of them once an app container has.
func (d *decision) initPosition(sandbox runtime.Sandbox) int {
	for i := range d.Pod.Spec.Containers {
		if _, ok := d.in(sandbox, d.Pod.Spec.Containers[i].Name); ok {
			return len(d.Pod.Spec.InitContainers)
		}
	}
	for i := len(d.Pod.Spec.InitContainers) - 1; i > 0; i-- {
		if _, ok := d.in(sandbox, d.Pod.Spec.InitContainers[i].Name); ok {
			return i
		}
	}
	return 0
}

// initStep makes one init container run and says whether the next may.
func (d *decision) initStep(c *v1.Container, sandbox runtime.Sandbox) (passed bool) {
	run, ok := d.in(sandbox, c.Name)
	if IsSidecar(c) {
		d.keepRunning(c, sandbox)
		return ok && run.State == runtime.Running && d.started(c, run)
	}
	if ok && run.State == runtime.Exited && run.ExitCode == 0 {
		return true
	}
	d.keepRunning(c, sandbox)
	return false
}

// appContainers starts the app containers, all at once but for one rule people
// rely on: those behind a container with a postStart hook wait for the hook.
func (d *decision) appContainers(sandbox runtime.Sandbox) {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		d.keepRunning(c, sandbox)
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
			continue
		}
		run, ok := d.in(sandbox, c.Name)
		if !ok || run.State == runtime.Created || (run.State == runtime.Running && !d.hooked(c, run)) {
			d.watchOthers(i+1, sandbox)
			return
		}
	}
}

// watchOthers keeps an eye on app containers whose start has to wait.
func (d *decision) watchOthers(from int, sandbox runtime.Sandbox) {
	for i := from; i < len(d.Pod.Spec.Containers); i++ {
		c := &d.Pod.Spec.Containers[i]
		if run, ok := d.in(sandbox, c.Name); ok && run.State == runtime.Running {
			d.check(c, run)
		}
	}
}

// ephemeralContainers starts each once; they are never restarted.
func (d *decision) ephemeralContainers(sandbox runtime.Sandbox) {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		run, ran := d.Runtime.Latest(c.Name)
		switch {
		case d.busy(StartContainer, c.Name):
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
	if d.busy(StartContainer, c.Name) {
		d.do(Action{Kind: StartContainer, Container: c.Name})
		return
	}
	run, ran := d.Runtime.Latest(c.Name)
	switch {
	case !ran:
		d.start(c, d.nextAttempt(c.Name), 0)
	case run.State == runtime.Created:
		// Whoever created it did not live to start it.
		d.do(Action{Kind: RemoveContainer, Container: c.Name, ID: run.ID})
	case run.State == runtime.Unknown:
		d.kill(run, d.killDeadline(run, "", 0), fmt.Sprintf("Container is in %q state, try killing it before restart", run.State))
	case run.State == runtime.Running:
		d.check(c, run)
	case run.SandboxID != sandbox.ID && isInit(d.Pod, c.Name):
		// A new sandbox starts from the beginning.
		d.start(c, run.Attempt+1, 0)
	case shouldRestart(d.Pod, c, run):
		d.restart(c, run)
	}
}

// restart starts the next run when the back-off after the last is over.
func (d *decision) restart(c *v1.Container, ended runtime.Container) {
	delay, next := restartDelay(c, ended)
	if at := ended.FinishedAt.Add(delay); d.Now.Before(at) {
		d.wakeAt(at)
		d.tellBackOff(c, ended)
		return
	}
	d.start(c, ended.Attempt+1, next)
}

func (d *decision) tellBackOff(c *v1.Container, ended runtime.Container) {
	run := d.Memory.Runs[ended.ID]
	if run.BackOffTold {
		return
	}
	run.BackOffTold = true
	d.Memory.Runs[ended.ID] = run
	d.tell(c.Name, v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, nameAndUID(d.Pod)))
}

func (d *decision) start(c *v1.Container, attempt uint32, backOff time.Duration) {
	if d.mayRetry(c.Name) {
		d.do(Action{Kind: StartContainer, Container: c.Name, Attempt: attempt, BackOff: backOff})
	}
}

// check runs a running container's postStart hook and stops it if it is not what or
// how it should be.
func (d *decision) check(c *v1.Container, run runtime.Container) {
	memory := d.Memory.Runs[run.ID]
	switch {
	case changed(c, run) && onlyResized(c, run):
		d.kill(run, d.killDeadline(run, "", d.specGrace()), fmt.Sprintf("Container %s resize requires restart", c.Name))
	case changed(c, run):
		d.kill(run, d.killDeadline(run, "", d.specGrace()), fmt.Sprintf("%s %s definition changed%s", d.title(c), c.Name, ", will be restarted"))
	case memory.HookFailed:
		d.kill(run, d.killDeadline(run, "", d.specGrace()), "FailedPostStartHook")
	case isFalse(memory.Liveness):
		d.kill(run, d.killDeadline(run, Liveness, d.specGrace()), fmt.Sprintf("%s %s failed liveness probe%s", d.title(c), c.Name, d.fate(c)))
	case isFalse(memory.Startup):
		d.kill(run, d.killDeadline(run, Startup, d.specGrace()), fmt.Sprintf("%s %s failed startup probe%s", d.title(c), c.Name, d.fate(c)))
	case !d.hooked(c, run):
		d.do(Action{Kind: PostStart, Container: c.Name, ID: run.ID})
	}
}

func (d *decision) title(c *v1.Container) string {
	if isInit(d.Pod, c.Name) {
		return "Init container"
	}
	return "Container"
}

func (d *decision) fate(c *v1.Container) string {
	if isInit(d.Pod, c.Name) || neverRestarts(d.Pod, c) {
		return ""
	}
	return ", will be restarted"
}

// hooked says whether the run's postStart hook is over, or there is none.
func (d *decision) hooked(c *v1.Container, run runtime.Container) bool {
	return c.Lifecycle == nil || c.Lifecycle.PostStart == nil || d.Memory.Runs[run.ID].Hooked
}

// started says whether a running container counts as started: its hook is over
// and its startup probe, if any, succeeded.
func (d *decision) started(c *v1.Container, run runtime.Container) bool {
	if !d.hooked(c, run) {
		return false
	}
	return c.StartupProbe == nil || isTrue(d.Memory.Runs[run.ID].Startup)
}

// ready says whether a started container is ready.
func (d *decision) ready(c *v1.Container, run runtime.Container) bool {
	return d.started(c, run) && (c.ReadinessProbe == nil || isTrue(d.Memory.Runs[run.ID].Readiness))
}

// in returns the container's newest run in the sandbox.
func (d *decision) in(sandbox runtime.Sandbox, name string) (runtime.Container, bool) {
	run, ok := d.Runtime.Latest(name)
	return run, ok && run.SandboxID == sandbox.ID
}

// nextAttempt numbers the next run of a container which the runtime does not know: 0 or,
// if the runtime lost its runs, one more than the API counted.
func (d *decision) nextAttempt(name string) uint32 {
	old := statusNamed(d.Pod.Status, name)
	if old == nil {
		return 0
	}
	last := old.LastTerminationState.Terminated
	if old.State.Waiting == nil || last != nil && last.ContainerID == old.ContainerID {
		return uint32(old.RestartCount) + 1
	}
	return uint32(old.RestartCount) // created, and never started
}

func (d *decision) ranBefore(name string) bool {
	old := statusNamed(d.Pod.Status, name)
	return old != nil && old.ContainerID != ""
}

// watchRunning lists what to probe and whose logs to keep small.
func (d *decision) watchRunning(sandbox runtime.Sandbox) {
	for _, run := range d.Runtime.Containers {
		c := containerOf(d.Pod, run.Name)
		if c == nil || run.State != runtime.Running || run.SandboxID != sandbox.ID {
			continue
		}
		d.out.Running[run.ID] = true
		if d.hooked(c, run) {
			d.out.Probe[run.ID] = true
		}
	}
}

// prune removes runs older than the one before the last, and sandboxes which hold
// none of the runs that are kept.
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
