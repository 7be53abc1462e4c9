// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe runs the startup, liveness and readiness probes of containers.
//
// Each probe of a running container is one goroutine. It waits until the startup probe has succeeded
// and the initial delay is over, then makes an attempt in each period. worker.go counts attempts:
// enough consecutive ones with the same outcome are a result, and a result is reported if it differs
// from the last. Attempts of exec and TCP are in attempt.go, those of HTTP and gRPC in http.go (with
// transport.go) and grpc.go.
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

// Runtime runs a command in a container. k8s.io/cri-api's RuntimeService implements it.
type Runtime interface {
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Options are what probes depend on.
type Options struct {
	Runtime  Runtime
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	// Observer counts attempts; nil for none.
	Observer Observer
}

// Observer counts the attempts of probes. *metrics.Metrics implements it.
type Observer interface {
	// Probed counts an attempt, with its result: "successful", "failed" or "unknown".
	Probed(kind string, pod *v1.Pod, container, result string, took time.Duration)
}

// Manager runs the probes of running containers. It implements pod.Probes.
type Manager struct {
	ctx     context.Context
	options Options
	http    *http.Client
	since   time.Time
	// attempt is runProbe; tests replace it.
	attempt func(ctx context.Context, target *nodepod.ProbeTarget, probe *v1.Probe) (outcome, string, error)

	mu      sync.Mutex
	targets map[string]*target
	workers sync.WaitGroup
}

// target is a container that is probed.
type target struct {
	nodepod.ProbeTarget
	report  func(nodepod.ProbeResult)
	started chan struct{} // closed once the startup probe has succeeded

	stop         context.CancelFunc
	stopLiveness context.CancelFunc // and startup
}

// New returns a Manager whose probes stop when ctx ends.
func New(ctx context.Context, options Options) *Manager {
	m := &Manager{
		ctx: ctx, options: options, http: &http.Client{Transport: newTransport(), CheckRedirect: sameHost}, since: options.Clock.Now(),
		targets: map[string]*target{},
	}
	m.attempt = m.runProbe
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
		m.startOne(liveness, t, nodepod.Startup, container.StartupProbe)
	}
	m.startOne(liveness, t, nodepod.Liveness, container.LivenessProbe)
	m.startOne(all, t, nodepod.Readiness, container.ReadinessProbe)
}

// startOne starts one probe, if the container declares it.
func (m *Manager) startOne(ctx context.Context, t *target, kind nodepod.ProbeKind, spec *v1.Probe) {
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

// Wait returns when no probe runs any more. The context of New must have ended.
func (m *Manager) Wait() { m.workers.Wait() }

// jitter returns a random delay for the first attempt on a container that ran before this agent, so
// that an agent restart does not probe all containers at once.
func (m *Manager) jitter(t *target, period time.Duration) time.Duration {
	if !t.StartedAt.Time.Before(m.since) || m.options.Clock.Since(m.since) >= period {
		return 0
	}
	return rand.N(period)
}

func (m *Manager) event(t *target, reason, message string) {
	m.options.Recorder.Event(nodepod.ContainerReference(t.Pod, t.Container.Name), v1.EventTypeWarning, reason, message)
}
