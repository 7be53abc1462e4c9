// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// program is what a run of a container does: it exits after a time with a code, or never.
type program struct {
	runs time.Duration // 0: until it is stopped
	code int32
}

// world is a model of everything around Decide: the runtime, the API and time. It checks that each action
// is allowed. Undisturbed, it carries out actions at once. With a random source, actions take several
// steps, interleave and take effect before the agent has their result, and the agent may crash at any
// moment.
type world struct {
	pod      *v1.Pod
	programs map[string][]program // by attempt; the last repeats
	deleteAt time.Duration        // 0: never
	evictAt  time.Duration        // likewise
	rand     *rand.Rand           // nil: undisturbed
	odds     int                  // the agent crashes at one in odds chances; 0: never
	unplug   int                  // likewise, the pod is deleted, half of the time by force

	now     time.Time
	start   time.Time
	runtime runtime.Pod
	serial  int
	gone    bool
	// prepared is set while drivers may have prepared the pod's claims.
	prepared bool
	// stored is the eviction in the pod's directory.
	stored *Eviction

	// The state of the agent, which a crash loses.
	memory  Memory
	old     v1.PodStatus
	flights []*flying

	crashes  int
	started  map[string]int // number of starts, by container
	stopped  []string       // containers that got a stop signal while running
	hooks    map[string]int // postStart and preStop calls, by kind and container
	finished bool
	removed  bool
	problems []string
}

// flying is an action in flight: it takes effect step by step, then the agent gets its result.
type flying struct {
	action Action
	steps  []func()
	apply  func(*Memory)
}

func newWorld(pod *v1.Pod, programs map[string][]program, crash *rand.Rand) *world {
	start := time.Unix(1_800_000_000, 0)
	w := &world{
		pod: pod.DeepCopy(), programs: programs, rand: crash, now: start, start: start,
		started: map[string]int{}, hooks: map[string]int{},
	}
	w.runtime.UID = pod.UID
	w.restart()
	return w
}

// restart replaces the agent by a new one, which has only the state of the API and the runtime.
func (w *world) restart() {
	w.memory = Remember(&w.pod.Status)
	w.memory.Evicted = w.stored
	w.old = *w.pod.Status.DeepCopy()
	w.flights = nil
	if w.rand == nil {
		return
	}
	// The runtime may give up on the starts of an agent that crashed.
	for i := range w.runtime.Containers {
		if c := &w.runtime.Containers[i]; c.State == runtime.Created && w.rand.IntN(2) == 0 {
			w.exit(c, 128)
		}
	}
}

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// maybeCrash crashes the agent, at random.
func (w *world) maybeCrash() bool {
	if w.rand == nil || w.odds == 0 || w.rand.IntN(w.odds) > 0 {
		return false
	}
	w.crashes++
	w.restart()
	return true
}

// run runs the pod until nothing happens any more, or until the limit.
func (w *world) run(limit time.Duration) {
	for steps := 0; w.now.Sub(w.start) < limit && !w.removed; steps++ {
		if steps > 20000 {
			w.problem("the decisions do not converge")
			return
		}
		w.tick()
		out := Decide(w.input())
		w.check(out)
		w.memory, w.old = out.Memory, out.Status
		if w.maybeCrash() {
			continue // before the status was written
		}
		if w.write(out); w.maybeCrash() {
			continue
		}
		if w.removed = out.Removed && len(w.flights) == 0; w.removed {
			return
		}
		if w.act(out.Actions) {
			continue
		}
		if w.gone && !out.Removed && out.Finished {
			continue // the pod was just deleted from the API
		}
		if !w.wait(out) {
			return
		}
	}
}

func (w *world) input() Input {
	seen := w.runtime
	seen.Sandboxes, seen.Containers = slices.Clone(w.runtime.Sandboxes), slices.Clone(w.runtime.Containers)
	inFlight := map[ActionKey]bool{}
	for _, f := range w.flights {
		inFlight[f.action.Key()] = true
	}
	return Input{
		Pod: w.pod, Deleted: w.gone, Old: w.old, Runtime: &seen, Memory: w.memory,
		InFlight: inFlight, HostIPs: []string{"192.0.2.1"}, RuntimeName: "model", Now: w.now,
	}
}

// write writes the status to the API, and finally deletes a finished pod.
func (w *world) write(out Output) {
	if w.gone {
		return
	}
	if IsOver(w.pod.Status.Phase) && out.Status.Phase != w.pod.Status.Phase {
		w.problem("phase went from %s to %s", w.pod.Status.Phase, out.Status.Phase)
	}
	w.pod = w.pod.DeepCopy()
	w.pod.Status = *out.Status.DeepCopy()
	if out.Finished && w.pod.DeletionTimestamp != nil {
		w.finished = true
		w.gone = true
	}
}

// check checks the rules that a single decision must obey.
func (w *world) check(out Output) {
	if IsOver(out.Status.Phase) && w.anyRunning() && !w.gone && !IsOver(w.pod.Status.Phase) {
		w.problem("phase %s while a container runs", out.Status.Phase)
	}
	if w.prepared && (IsOver(out.Status.Phase) && !IsOver(w.pod.Status.Phase) || out.Finished || out.Removed) {
		w.problem("phase %s, finished %t, removed %t while claims are prepared", out.Status.Phase, out.Finished, out.Removed)
	}
	keys := map[ActionKey]bool{}
	for _, a := range out.Actions {
		if keys[a.Key()] {
			w.problem("action %s twice in one decision", a.Key())
		}
		keys[a.Key()] = true
	}
}

func (w *world) anyRunning() bool {
	return slices.ContainsFunc(w.runtime.Containers, func(c runtime.Container) bool { return c.State == runtime.Running })
}

// tick exits the containers that are due, and deletes the pod if that is due.
func (w *world) tick() {
	for i := range w.runtime.Containers {
		c := &w.runtime.Containers[i]
		if at, ok := w.endOf(*c); ok && !w.now.Before(at) {
			w.exit(c, w.program(*c).code)
		}
	}
	if w.deleteAt > 0 && w.now.Sub(w.start) >= w.deleteAt && w.pod.DeletionTimestamp == nil {
		w.delete()
	}
	if w.evictAt > 0 && w.now.Sub(w.start) >= w.evictAt && w.stored == nil && !IsOver(w.old.Phase) {
		w.stored = &Eviction{Refusal: Refusal{Reason: "Evicted", Message: "model"}, GraceSeconds: 1, Disrupts: true}
		w.memory = w.memory.clone()
		w.memory.Evicted = w.stored
	}
}

// delete deletes the pod with its own grace period.
func (w *world) delete() {
	w.pod = w.pod.DeepCopy()
	at := metav1.NewTime(w.now)
	w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = &at, w.pod.Spec.TerminationGracePeriodSeconds
}

func (w *world) program(c runtime.Container) program {
	list := w.programs[c.Name]
	return list[min(int(c.Attempt), len(list)-1)]
}

func (w *world) endOf(c runtime.Container) (time.Time, bool) {
	p := w.program(c)
	return c.StartedAt.Add(p.runs), c.State == runtime.Running && p.runs > 0
}

func (w *world) exit(c *runtime.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt, c.Reason = runtime.Exited, code, w.now, "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
}

// wait advances time to the next event. It returns false if there is none.
func (w *world) wait(out Output) bool {
	next := out.Wake
	consider := func(t time.Time) {
		if t.After(w.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, c := range w.runtime.Containers {
		if at, ok := w.endOf(c); ok {
			consider(at)
		}
	}
	if w.deleteAt > 0 && w.pod.DeletionTimestamp == nil {
		consider(w.start.Add(w.deleteAt))
	}
	if w.evictAt > 0 && w.stored == nil {
		consider(w.start.Add(w.evictAt))
	}
	if next.IsZero() {
		return false
	}
	if !next.After(w.now) {
		w.problem("wants to wake in the past")
		return false
	}
	w.now = next
	return true
}

// act launches actions and advances those in flight. It returns false if there are none.
func (w *world) act(actions []Action) bool {
	for _, a := range actions {
		if !slices.ContainsFunc(w.flights, func(f *flying) bool { return f.action.Key() == a.Key() }) {
			w.flights = append(w.flights, w.launch(a))
		}
	}
	if len(w.flights) == 0 {
		return false
	}
	if w.rand == nil {
		for len(w.flights) > 0 {
			w.advance(0)
		}
		return true
	}
	w.advance(w.rand.IntN(len(w.flights)))
	w.maybeCrash()
	if w.unplug > 0 && w.pod.DeletionTimestamp == nil && w.rand.IntN(w.unplug) == 0 {
		w.delete()
		w.gone = w.rand.IntN(2) == 0
	}
	return true
}

// advance carries out one step of an action in flight.
func (w *world) advance(i int) {
	f := w.flights[i]
	if len(f.steps) > 0 {
		step := f.steps[0]
		f.steps = f.steps[1:]
		step()
		return
	}
	w.flights = slices.Delete(w.flights, i, i+1)
	if f.apply != nil {
		w.memory = w.memory.clone()
		f.apply(&w.memory)
	}
}

// launch returns the steps of an action, and its result for the agent.
func (w *world) launch(a Action) *flying {
	if w.stored != nil && stageOf(a.Kind).starts {
		w.problem("%s after the eviction", a.Key())
	}
	f := &flying{action: a}
	remember := func(change func(*RunMemory)) func(*Memory) {
		return func(m *Memory) {
			run := m.Runs[a.ID]
			change(&run)
			m.Runs[a.ID] = run
		}
	}
	switch a.Kind {
	case PrepareVolumes:
		f.apply = func(m *Memory) { m.VolumesReady = true }
	case PrepareClaims:
		f.steps = []func(){func() { w.prepared = true }}
		f.apply = func(m *Memory) { m.ClaimsReady = true }
	case CreateSandbox:
		f.steps = []func(){func() { w.createSandbox(a) }}
	case StopSandbox:
		f.steps = []func(){func() { w.breakSandbox(a) }, func() { w.checkSandbox(a) }}
		f.apply = func(m *Memory) { m.Stopped[a.ID] = true }
	case RemoveSandbox:
		f.steps = []func(){func() { w.removeSandbox(a) }}
	case StartContainer:
		id := ""
		f.steps = []func(){func() { id = w.createContainer(a) }, func() { w.startContainer(id) }}
	case PostStart:
		f.steps = []func(){func() { w.hooks["postStart "+a.Container]++ }}
		f.apply = remember(func(run *RunMemory) { run.Hooked = true })
	case PreStop:
		f.steps = []func(){func() { w.hooks["preStop "+a.Container]++ }}
		f.apply = remember(func(run *RunMemory) { run.PreStopped = true })
	case StopContainer:
		f.steps = []func(){func() { w.stopContainer(a) }}
	case RemoveContainer:
		f.steps = []func(){func() { w.removeContainer(a) }}
	case DetachContent:
		w.checkNoneRuns()
		f.apply = func(m *Memory) { m.ContentDetached = true }
	case Release:
		f.steps = []func(){w.checkRelease, func() { w.prepared = false }}
		f.apply = func(m *Memory) { m.ClaimsReleased, m.Released = true, true }
	case Clean:
		f.apply = func(m *Memory) { m.Cleaned = true }
	default:
		w.problem("unknown action %s", a.Kind)
	}
	return f
}

func (w *world) createSandbox(a Action) {
	if !w.memory.VolumesReady {
		w.problem("sandbox before volumes")
	}
	if usesClaims(w.pod) && !w.prepared {
		w.problem("sandbox before claims")
	}
	w.serial++
	w.runtime.Sandboxes = slices.Insert(w.runtime.Sandboxes, 0, runtime.Sandbox{
		ID: fmt.Sprintf("sandbox-%d", w.serial), Attempt: a.Attempt, Ready: true, CreatedAt: w.now, IPs: []string{"10.0.0.2"},
	})
	if len(w.runtime.Sandboxes) > 1 {
		w.problem("second sandbox")
	}
}

func (w *world) checkNoneRuns() {
	if w.anyRunning() {
		w.problem("volumes taken away while a container runs")
	}
}

func (w *world) checkRelease() {
	w.checkNoneRuns()
	for _, s := range w.runtime.Sandboxes {
		if s.Ready {
			w.problem("released while a sandbox is ready")
		}
	}
}

// breakSandbox is the first step of stopping a sandbox: its process has exited, its network remains.
func (w *world) breakSandbox(a Action) {
	for i := range w.runtime.Sandboxes {
		if w.runtime.Sandboxes[i].ID == a.ID {
			w.runtime.Sandboxes[i].Ready = false
		}
	}
	for _, c := range w.runtime.Containers {
		if c.SandboxID == a.ID && c.State == runtime.Running {
			w.problem("sandbox stopped under running container %s", c.Name)
		}
	}
}

// checkSandbox is the second step: the sandbox must still exist.
func (w *world) checkSandbox(a Action) {
	if !slices.ContainsFunc(w.runtime.Sandboxes, func(s runtime.Sandbox) bool { return s.ID == a.ID }) {
		w.problem("sandbox removed while it was being stopped")
	}
}

func (w *world) removeSandbox(a Action) {
	w.runtime.Sandboxes = slices.DeleteFunc(w.runtime.Sandboxes, func(s runtime.Sandbox) bool { return s.ID == a.ID })
	w.runtime.Containers = slices.DeleteFunc(w.runtime.Containers, func(c runtime.Container) bool { return c.SandboxID == a.ID })
}

// outcome returns the state that must not depend on crashes.
func (w *world) outcome() string {
	s := w.pod.Status
	text := fmt.Sprintf("phase %s %q, finished %t\n", s.Phase, s.Reason, w.finished)
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			text += fmt.Sprintf("%s: restarts %d, ready %t, %s\n", c.Name, c.RestartCount, c.Ready, stateText(c.State))
		}
	}
	return text
}

func stateText(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d", s.Terminated.ExitCode)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	}
	return "nothing"
}
