// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// modelFrom rebuilds the model of a pod from its status in the API. Containers that it shows as running
// have run since then.
func modelFrom(p *v1.Pod) *model {
	m := &model{
		uid:      p.UID,
		status:   *p.Status.DeepCopy(),
		memory:   pod.Remember(&p.Status),
		sigterms: map[string]time.Time{},
		exits:    map[string]ending{},
	}
	m.runtime = runtime.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			m.runtime.Containers = append(m.runtime.Containers, runsOf(p, &list[i])...)
		}
	}
	if len(m.runtime.Containers) > 0 || p.Status.PodIP != "" {
		m.runtime.Sandboxes = []runtime.Sandbox{sandboxFrom(p)}
	}
	return m
}

func sandboxFrom(p *v1.Pod) runtime.Sandbox {
	s := runtime.Sandbox{ID: sandboxID(p.UID, 0), CreatedAt: p.CreationTimestamp.Time}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReadyToStartContainers {
			s.Ready = c.Status == v1.ConditionTrue
		}
	}
	if s.Ready && !p.Spec.HostNetwork {
		for _, ip := range p.Status.PodIPs {
			s.IPs = append(s.IPs, ip.IP)
		}
	}
	return s
}

// runsOf returns the runs in a container's status, newest first: the last and the one before it.
func runsOf(p *v1.Pod, s *v1.ContainerStatus) []runtime.Container {
	var runs []runtime.Container
	add := func(id string, attempt uint32, state v1.ContainerState) {
		if run, ok := runOf(p, s, id, attempt, state); ok {
			runs = append(runs, run)
		}
	}
	attempt := uint32(s.RestartCount)
	waiting := s.State.Waiting != nil
	if !waiting {
		add(s.ContainerID, attempt, s.State)
		if len(runs) > 0 {
			runs[0].Life = lifeFrom(p)
		}
	}
	if last := s.LastTerminationState.Terminated; last != nil {
		if !waiting {
			attempt--
		}
		add(last.ContainerID, attempt, s.LastTerminationState)
	}
	return runs
}

// lifeFrom returns the life of the newest runs of a pod: 1 if a container has run again after an end that restarted all. Of earlier
// lives no more than that is in a status.
func lifeFrom(p *v1.Pod) int {
	for i := range p.Spec.InitContainers {
		if ranAgain(p.Status.InitContainerStatuses, &p.Spec.InitContainers[i]) {
			return 1
		}
	}
	for i := range p.Spec.Containers {
		if ranAgain(p.Status.ContainerStatuses, &p.Spec.Containers[i]) {
			return 1
		}
	}
	return 0
}

func ranAgain(statuses []v1.ContainerStatus, c *v1.Container) bool {
	for _, s := range statuses {
		if last := s.LastTerminationState.Terminated; s.Name == c.Name && last != nil {
			return s.State.Waiting == nil && pod.RestartsAll(c, last.ExitCode)
		}
	}
	return false
}

func runOf(p *v1.Pod, s *v1.ContainerStatus, id string, attempt uint32, state v1.ContainerState) (runtime.Container, bool) {
	id, found := strings.CutPrefix(id, runtimeName+"://")
	if !found {
		return runtime.Container{}, false
	}
	run := runtime.Container{
		ID: id, Name: s.Name, SandboxID: sandboxID(p.UID, 0), Attempt: attempt,
		Image: s.Image, ImageID: s.ImageID, BackOff: pod.BackOffAt(attempt),
	}
	switch {
	case state.Running != nil:
		run.State = runtime.Running
		run.StartedAt = state.Running.StartedAt.Time
	case state.Terminated != nil:
		t := state.Terminated
		run.State, run.ExitCode, run.Reason, run.Message = runtime.Exited, t.ExitCode, t.Reason, t.Message
		run.StartedAt, run.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
	default:
		return runtime.Container{}, false
	}
	run.CreatedAt = run.StartedAt
	return run, true
}

// usesAddress reports whether the pod has an address of its own.
func usesAddress(p *v1.Pod) bool { return p.Status.PodIP != "" && !p.Spec.HostNetwork }
