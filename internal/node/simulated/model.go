// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// runtimeName is the scheme of container IDs.
const runtimeName = "simulated"

// model is the runtime of one pod, and the memory of its state machine.
type model struct {
	uid     types.UID
	runtime runtime.Pod
	memory  pod.Memory
	// status is the last decided status.
	status v1.PodStatus
	// sigterms has the time at which a container got SIGTERM, exits the exit that follows.
	sigterms map[string]time.Time
	exits    map[string]ending
}

// ending is the future exit of a container.
type ending struct {
	at   time.Time
	code int32
}

// world is what a simulation depends on besides the pod.
type world struct {
	now     time.Time
	hostIPs []string
	// address returns the pod's IP, always the same.
	address func() (string, error)
}

// outcome is the result of a simulation.
type outcome struct {
	status   v1.PodStatus
	events   []pod.Event
	finished bool
	// wake is when to simulate the pod again if nothing happens; zero for never.
	wake time.Time
}

// maxRounds limits a simulation. Each round starts or stops something, and a container that exits at once is
// restarted with backoff, so that a pod needs a few rounds for each container.
const maxRounds = 200

// simulate decides and acts until no action is left before the pod's next timer.
func (m *model) simulate(p *v1.Pod, w world) outcome {
	b, _ := behaviourOf(p) // a pod with an invalid annotation is refused
	var s outcome
	for range maxRounds {
		next := m.advance(p, b, w.now)
		out := pod.Decide(pod.Input{
			Pod: p, Old: m.status, Runtime: &m.runtime, Memory: m.memory,
			HostIPs: w.hostIPs, RuntimeName: runtimeName, Now: w.now,
		})
		m.memory, m.status = out.Memory, out.Status
		s.status, s.finished = out.Status, out.Finished
		s.events = append(s.events, out.Events...)
		s.wake = earliest(next, out.Wake)
		acted := false
		for _, a := range out.Actions {
			acted = m.act(p, b, w, a) || acted
		}
		probed, at := m.probe(p, out, w.now)
		s.wake = earliest(s.wake, at)
		if !acted && !probed {
			for _, e := range m.exits {
				s.wake = earliest(s.wake, e.at)
			}
			return s
		}
	}
	s.wake = w.now.Add(time.Second)
	return s
}

// earliest returns the earlier of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// changedHash differs from the hash of every container. The state machine restarts a container whose run
// has it, as it does on a real node when the hash of the spec changes.
const changedHash = "changed"

// advance exits the containers that are due, and returns when the next one is.
func (m *model) advance(p *v1.Pod, b behaviour, now time.Time) (next time.Time) {
	for i := range m.runtime.Containers {
		run := &m.runtime.Containers[i]
		if c := specOf(p, run.Name); c != nil && c.Image != run.Image {
			run.Hash = changedHash
		}
		end, ok := m.endOf(p, b, run)
		if !ok {
			continue
		}
		if end.at.After(now) {
			next = earliest(next, end.at)
			continue
		}
		finish(run, end)
		delete(m.exits, run.ID)
		delete(m.sigterms, run.ID)
	}
	return next
}

// endOf returns the exit of a running container, if one is known.
func (m *model) endOf(p *v1.Pod, b behaviour, run *runtime.Container) (ending, bool) {
	if run.State != runtime.Running {
		return ending{}, false
	}
	end, known := m.exits[run.ID]
	if b.exits && isApp(p, run.Name) {
		if at := run.StartedAt.Add(b.exitAfter); !known || at.Before(end.at) {
			return ending{at, b.exitCode}, true
		}
	}
	return end, known
}

func finish(run *runtime.Container, end ending) {
	run.State, run.FinishedAt, run.ExitCode = runtime.Exited, end.at, end.code
	run.Reason = "Completed"
	if end.code != 0 {
		run.Reason = "Error"
	}
}

// act carries out an action and reports whether that changed anything.
func (m *model) act(p *v1.Pod, b behaviour, w world, a pod.Action) bool {
	switch a.Kind {
	case pod.PrepareVolumes:
		m.memory.Prepared(p)
	case pod.PrepareClaims:
		m.memory.ClaimsReady = true
	case pod.CreateSandbox:
		m.createSandbox(p, w, a)
	case pod.StopSandbox:
		m.stopSandbox(a.ID)
	case pod.RemoveSandbox:
		m.runtime.Sandboxes = slices.DeleteFunc(m.runtime.Sandboxes, func(s runtime.Sandbox) bool { return s.ID == a.ID })
	case pod.StartContainer:
		m.startContainer(p, w, a)
	case pod.RemoveContainer:
		m.runtime.Containers = slices.DeleteFunc(m.runtime.Containers, func(c runtime.Container) bool { return c.ID == a.ID })
	case pod.PostStart:
		m.remember(a.ID, func(r *pod.RunMemory) { r.Hooked = true })
	case pod.PreStop:
		m.remember(a.ID, func(r *pod.RunMemory) { r.PreStopped = true })
	case pod.StopContainer:
		return m.stopContainer(b, w, a)
	case pod.ResizePod:
		m.memory.Resized(p, m.runtime.Containers)
	case pod.Release:
		m.memory.ClaimsReleased, m.memory.Released = true, true
	case pod.Clean:
		m.memory.Cleaned = true
	}
	return true
}

func (m *model) remember(id string, change func(*pod.RunMemory)) {
	run := m.memory.Runs[id]
	change(&run)
	m.memory.Runs[id] = run
}

func (m *model) createSandbox(p *v1.Pod, w world, a pod.Action) {
	s := runtime.Sandbox{ID: sandboxID(p.UID, a.Attempt), Attempt: a.Attempt, Ready: true, CreatedAt: w.now}
	if !p.Spec.HostNetwork {
		ip, err := w.address()
		if err != nil {
			const reason = "FailedCreatePodSandBox"
			m.memory.Failures[pod.OfSandbox] = m.memory.Failures[pod.OfSandbox].Fail(reason, "Failed to create pod sandbox: "+err.Error(), w.now)
			return
		}
		s.IPs = []string{ip}
	}
	delete(m.memory.Failures, pod.OfSandbox)
	m.runtime.Sandboxes = slices.Insert(m.runtime.Sandboxes, 0, s)
}

func (m *model) stopSandbox(id string) {
	for i := range m.runtime.Sandboxes {
		if s := &m.runtime.Sandboxes[i]; s.ID == id {
			s.Ready, s.IPs = false, nil
		}
	}
	m.memory.Stopped[id] = true
}

func (m *model) startContainer(p *v1.Pod, w world, a pod.Action) {
	c := specOf(p, a.Container)
	sandbox, ok := m.runtime.ReadySandbox()
	if c == nil || !ok {
		return
	}
	run := runtime.Container{
		ID: containerID(p.UID, c.Name, a.Attempt), Name: c.Name, SandboxID: sandbox.ID, Attempt: a.Attempt,
		State: runtime.Running, BackOff: a.BackOff, Life: a.Life, CreatedAt: w.now, StartedAt: w.now,
		Image: c.Image, ImageID: imageID(c.Image),
	}
	if isInit(p, c.Name) {
		finish(&run, ending{at: w.now})
	}
	m.runtime.Containers = slices.Insert(m.runtime.Containers, 0, run)
}

// stopContainer sends SIGTERM: the container exits after its StopAfter, at the latest at the deadline. A
// second call changes something only if the deadline is earlier.
func (m *model) stopContainer(b behaviour, w world, a pod.Action) bool {
	if _, ok := m.sigterms[a.ID]; !ok {
		m.sigterms[a.ID] = w.now
	}
	end := ending{at: m.sigterms[a.ID].Add(b.stopAfter), code: codeTerminated}
	if a.Deadline.Before(end.at) {
		end = ending{at: a.Deadline, code: codeKilled}
	}
	if end.at.Before(w.now) {
		end.at = w.now
	}
	old, known := m.exits[a.ID]
	m.exits[a.ID] = end
	return !known || old != end
}

// probe makes the probes of running containers succeed once their initial delay is over.
func (m *model) probe(p *v1.Pod, out pod.Output, now time.Time) (changed bool, wake time.Time) {
	for _, run := range m.runtime.Containers {
		c := specOf(p, run.Name)
		if !out.Probe[run.ID] || c == nil || run.State != runtime.Running {
			continue
		}
		memory := m.memory.Runs[run.ID]
		known, probe := &memory.Readiness, c.ReadinessProbe
		if c.StartupProbe != nil && memory.Startup == nil {
			known, probe = &memory.Startup, c.StartupProbe
		}
		if probe == nil || *known != nil {
			continue
		}
		if at := run.StartedAt.Add(time.Duration(probe.InitialDelaySeconds) * time.Second); now.Before(at) {
			wake = earliest(wake, at)
			continue
		}
		success := true
		*known = &success
		m.memory.Runs[run.ID] = memory
		changed = true
	}
	return changed, wake
}

func sandboxID(uid types.UID, attempt uint32) string {
	return string(uid) + "/" + strconv.FormatUint(uint64(attempt), 10)
}

func containerID(uid types.UID, name string, attempt uint32) string {
	return string(uid) + "/" + name + "/" + strconv.FormatUint(uint64(attempt), 10)
}

func imageID(image string) string { return runtimeName + "://" + image }

// specOf returns the spec of any kind of container, or nil.
func specOf(p *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := &p.Spec.EphemeralContainers[i]; c.Name == name {
			return (*v1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return nil
}

func isApp(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == name })
}

// isInit reports whether a container is an init container that exits, not a sidecar (KEP-753).
func isInit(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && !pod.IsSidecar(&c)
	})
}
