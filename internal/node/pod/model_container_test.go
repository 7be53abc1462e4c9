// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

func (w *world) createContainer(a Action) (id string) {
	if w.isStopping() {
		return "" // the stage was cancelled
	}
	w.checkStart(a)
	w.serial++
	id = fmt.Sprintf("%s-%d", a.Container, w.serial)
	w.runtime.Containers = slices.Insert(w.runtime.Containers, 0, runtime.Container{
		ID: id, Name: a.Container, SandboxID: w.runtime.Sandboxes[0].ID,
		Attempt: a.Attempt, State: runtime.Created, BackOff: a.BackOff, Life: a.Life, CreatedAt: w.now,
		Hash: criconfig.Hash(w.pod, containerOf(w.pod, a.Container)),
	})
	return id
}

func (w *world) startContainer(id string) {
	for i := range w.runtime.Containers {
		c := &w.runtime.Containers[i]
		if c.ID == id {
			c.State, c.StartedAt = runtime.Running, w.now
			w.started[c.Name]++
			if !w.runtime.Sandboxes[0].Ready {
				w.problem("%s started in a sandbox that was stopped", c.Name)
			}
		}
	}
}

// isStopping reports whether the worker has decided to stop the pod.
func (w *world) isStopping() bool { return !w.memory.StoppingSince.IsZero() }

// checkStart checks the rules of starting: one run of a container at a time, init containers in order and
// before app containers, no start in a pod that is over.
func (w *world) checkStart(a Action) {
	for _, c := range w.runtime.Containers {
		if c.Name == a.Container && c.State != runtime.Exited {
			w.problem("second run of %s beside one that is %s", a.Container, c.State)
		}
		if c.Name == a.Container && c.Attempt >= a.Attempt {
			w.problem("attempt %d of %s after attempt %d", a.Attempt, a.Container, c.Attempt)
		}
	}
	for _, c := range w.runtime.Containers {
		if c.State == runtime.Running && c.Life != a.Life {
			w.problem("start of %s in life %d beside %s of life %d", a.Container, a.Life, c.Name, c.Life)
		}
	}
	if IsOver(w.pod.Status.Phase) {
		w.problem("start of %s in a pod that is over", a.Container)
	}
	if len(w.runtime.Sandboxes) == 0 || !w.runtime.Sandboxes[0].Ready {
		w.problem("start of %s without a sandbox", a.Container)
	}
	for i := range w.pod.Spec.InitContainers {
		init := &w.pod.Spec.InitContainers[i]
		if init.Name == a.Container {
			return
		}
		latest, ran := w.runtime.Latest(init.Name)
		if !ran || latest.Life != a.Life || !IsSidecar(init) && (latest.State != runtime.Exited || latest.ExitCode != 0) {
			w.problem("start of %s before init container %s is through", a.Container, init.Name)
		}
	}
}

// stopContainer stops a container, which exits at once.
func (w *world) stopContainer(a Action) {
	for i := range w.runtime.Containers {
		c := &w.runtime.Containers[i]
		if c.ID != a.ID || c.State != runtime.Running {
			continue
		}
		if spec := containerOf(w.pod, c.Name); hasPreStop(spec) && w.hooks["preStop "+c.Name] == 0 && w.now.Before(a.Deadline) {
			w.problem("%s stopped before its preStop hook", c.Name)
		}
		w.checkTurn(*c, a)
		w.stopped = append(w.stopped, c.Name)
		w.exit(c, 143)
	}
}

// checkTurn checks the order of stopping: sidecars after app containers, in reverse order.
func (w *world) checkTurn(c runtime.Container, a Action) {
	index, sidecar := sidecarNamed(w.pod, c.Name)
	if !sidecar || !w.now.Before(a.Deadline) {
		return
	}
	for _, other := range w.runtime.Containers {
		at, also := sidecarNamed(w.pod, other.Name)
		if other.State == runtime.Running && !isInit(w.pod, other.Name) || other.State == runtime.Running && also && at > index {
			w.problem("sidecar %s stopped before %s", c.Name, other.Name)
		}
	}
}

func (w *world) removeContainer(a Action) {
	w.runtime.Containers = slices.DeleteFunc(w.runtime.Containers, func(c runtime.Container) bool {
		if c.ID == a.ID && c.State == runtime.Running {
			w.problem("running container %s removed", c.Name)
		}
		return c.ID == a.ID
	})
}
