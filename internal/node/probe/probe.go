// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe finds out whether containers have started, live and are ready.
//
// Each probe of a running container is one goroutine: it waits for the startup
// probe to succeed and for its initial delay, then probes each period, the first time
// right away. Single attempts are counted (worker.go); only when enough of them in a row
// agree is there a result, and only a new result is reported. How one attempt
// goes is in a file for each way: exec, http, tcp and grpc.
package probe

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// Runtime runs a command in a container; k8s.io/cri-api's RuntimeService does.
type Runtime interface {
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Options says what probes are made with.
type Options struct {
	Runtime  Runtime
	Recorder record.EventRecorder
	Clock    clock.WithTicker
}

// Manager runs the probes of running containers. It implements pod.Probes.
type Manager struct {
	ctx     context.Context
	options Options
	client  *http.Transport
	since   time.Time
	// attempt is how one attempt is made; tests replace it.
	attempt func(ctx context.Context, target *nodepod.ProbeTarget, probe *v1.Probe) (outcome, string, error)

	mu      sync.Mutex
	targets map[string]*target
	workers sync.WaitGroup
}

// target is a container with its probes under way.
type target struct {
	nodepod.ProbeTarget
	report  func(nodepod.ProbeResult)
	started chan struct{} // closed once the startup probe succeeded

	stop         context.CancelFunc
	stopLiveness context.CancelFunc // and startup
}

// New returns a Manager whose probes end with ctx.
func New(ctx context.Context, options Options) *Manager {
	m := &Manager{
		ctx: ctx, options: options, client: newTransport(), since: options.Clock.Now(),
		targets: map[string]*target{},
	}
	m.attempt = m.once
	return m
}

// Start implements pod.Probes.
func (m *Manager) Start(probed nodepod.ProbeTarget, report func(nodepod.ProbeResult)) {
	container := probed.Container
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.targets[probed.ContainerID] != nil || m.ctx.Err() != nil {
		return
	}
	t := &target{ProbeTarget: probed, report: report, started: make(chan struct{})}
	if container.StartupProbe == nil || probed.Started {
		close(t.started)
	}
	all, stop := context.WithCancel(m.ctx)
	liveness, stopLiveness := context.WithCancel(all)
	t.stop, t.stopLiveness = stop, stopLiveness
	m.targets[probed.ContainerID] = t

	if !probed.Started {
		m.begin(liveness, t, nodepod.Startup, container.StartupProbe)
	}
	m.begin(liveness, t, nodepod.Liveness, container.LivenessProbe)
	m.begin(all, t, nodepod.Readiness, container.ReadinessProbe)
}

func (m *Manager) begin(ctx context.Context, t *target, kind nodepod.ProbeKind, spec *v1.Probe) {
	if spec == nil {
		return
	}
	w := &worker{manager: m, target: t, kind: kind, spec: spec}
	m.workers.Go(func() { w.run(ctx) })
}

// Stop implements pod.Probes.
func (m *Manager) Stop(containerID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[containerID]; t != nil {
		t.stop()
		delete(m.targets, containerID)
	}
}

// StopLiveness implements pod.Probes.
func (m *Manager) StopLiveness(containerID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[containerID]; t != nil {
		t.stopLiveness()
	}
}

// Wait returns when no probe runs any more: after the context of New is done.
func (m *Manager) Wait() { m.workers.Wait() }

// spread is how long the first attempt on a container that ran before this agent
// waits at random, so that a restart does not probe all containers at once.
func (m *Manager) spread(t *target, period time.Duration) time.Duration {
	if !t.StartedAt.Time.Before(m.since) || m.options.Clock.Since(m.since) >= period {
		return 0
	}
	return rand.N(period)
}

func (m *Manager) event(t *target, reason, message string) {
	m.options.Recorder.Event(nodepod.ContainerReference(t.Pod, t.Container.Name), v1.EventTypeWarning, reason, message)
}
