// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/pod"
)

const (
	reconnectPause = time.Second
	pollPeriod     = 100 * time.Millisecond
	// reloadLimit is the time that logind has to read its configuration.
	reloadLimit = 3 * time.Second
)

var (
	refused    = pod.Refusal{Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down."}
	terminated = pod.Refusal{Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."}
)

var errShuttingDown = errors.New("node is shutting down")

// Pods are the pods of the node.
type Pods interface {
	Active() []*v1.Pod
	// Evict ends a pod, which then fails. It returns false if the pod is over, or is being ended.
	Evict(uid types.UID, e pod.Eviction) bool
	// Finished reports whether nothing of the pod runs and its volumes are released.
	Finished(uid types.UID) bool
}

// Logind is a connection to the login manager, which announces shutdowns.
type Logind interface {
	// InhibitDelay returns how long inhibitors can delay a shutdown.
	InhibitDelay() (time.Duration, error)
	// SetInhibitDelay configures it, and has the configuration read, which takes a moment.
	SetInhibitDelay(delay time.Duration) error
	// Inhibit delays shutdowns until the result is closed. While a shutdown is imminent, it fails.
	Inhibit() (io.Closer, error)
	// Shutdowns reports whether a shutdown is imminent, and returns a channel that gets true when one becomes so, and false
	// when it is cancelled. The channel is closed with the connection.
	Shutdowns() (imminent bool, changes <-chan bool, err error)
	Close() error
}

// Options are what a Manager depends on.
type Options struct {
	Config *kubeletv1beta1.KubeletConfiguration
	// Connect connects to logind; [Connect] but in tests.
	Connect func() (Logind, error)
	Pods    Pods
	// Changed is called when Problem changes.
	Changed func()
	// Event records an event on the node.
	Event func(eventType, reason, message string)
	// Observe is called, if set, when pods begin to be ended, with a zero end, and when all have been.
	Observe func(begin, end time.Time)
	Clock   clock.Clock
}

// Manager ends the pods of the node before a shutdown.
type Manager struct {
	options Options
	periods []period
	down    atomic.Bool
}

// New returns a manager that does nothing before Run.
func New(options Options) *Manager {
	return &Manager{options: options, periods: periodsOf(options.Config)}
}

// Problem returns why the node is not ready: an imminent shutdown, or nil.
func (m *Manager) Problem() error {
	if m.down.Load() {
		return errShuttingDown
	}
	return nil
}

// Refuse returns why a new pod is refused, or nil.
func (m *Manager) Refuse() *pod.Refusal {
	if !m.down.Load() {
		return nil
	}
	refusal := refused
	return &refusal
}

// Run waits for shutdowns until ctx ends. If the configuration asks for no graceful shutdown, it does nothing.
func (m *Manager) Run(ctx context.Context) {
	if len(m.periods) == 0 {
		return
	}
	for ctx.Err() == nil {
		if err := m.watch(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Shutdowns of the machine are not graceful now, will retry")
		}
		m.pause(ctx, reconnectPause)
	}
}

// watch handles shutdowns until the connection ends. An agent that starts during a shutdown cannot delay it, but ends what an
// earlier one had not.
func (m *Manager) watch(ctx context.Context) error {
	login, err := m.options.Connect()
	if err != nil {
		return err
	}
	defer login.Close()
	imminent, changes, err := login.Shutdowns()
	if err != nil {
		return err
	}
	lock := io.Closer(io.NopCloser(nil))
	defer func() { _ = lock.Close() }()
	for {
		if imminent != m.down.Load() {
			m.set(imminent)
		}
		next := io.Closer(io.NopCloser(nil))
		if imminent {
			m.endPods(ctx)
		} else if next, err = m.inhibit(ctx, login); err != nil {
			return err
		}
		_ = lock.Close()
		lock = next
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case imminent, open = <-changes:
			if !open {
				return errors.New("the connection to logind has ended")
			}
		}
	}
}

// inhibit delays shutdowns until the result is closed, by as long as all periods take.
func (m *Manager) inhibit(ctx context.Context, login Logind) (io.Closer, error) {
	if err := m.ensureDelay(ctx, login); err != nil {
		return nil, err
	}
	return login.Inhibit()
}

// ensureDelay makes logind allow a delay of all periods.
func (m *Manager) ensureDelay(ctx context.Context, login Logind) error {
	total := totalOf(m.periods)
	current, err := login.InhibitDelay()
	if err != nil || current >= total {
		return err
	}
	if err := login.SetInhibitDelay(total); err != nil {
		return err
	}
	for deadline := m.options.Clock.Now().Add(reloadLimit); m.options.Clock.Now().Before(deadline); {
		if current, err = login.InhibitDelay(); err != nil || current >= total {
			return err
		}
		m.pause(ctx, pollPeriod)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("logind delays shutdowns by at most %v, and the graceful shutdown takes %v", current, total)
}

func (m *Manager) set(imminent bool) {
	m.down.Store(imminent)
	message := "Shutdown manager detected shutdown cancellation"
	if imminent {
		message = "Shutdown manager detected shutdown event"
	}
	m.options.Event(v1.EventTypeNormal, "Shutdown", message)
	m.options.Changed()
}

// endPods ends the groups of pods one after another. A group without pods takes no time.
func (m *Manager) endPods(ctx context.Context) {
	begin := m.options.Clock.Now()
	m.observe(begin, time.Time{})
	defer func() { m.observe(begin, m.options.Clock.Now()) }()
	for i, group := range groupsOf(m.periods, m.options.Pods.Active()) {
		limit := m.periods[i].limit
		for _, p := range group {
			m.options.Pods.Evict(p.UID, pod.Eviction{Refusal: terminated, GraceSeconds: graceOf(p, limit), Disrupts: true})
		}
		deadline := m.options.Clock.Now().Add(limit)
		for ctx.Err() == nil && !m.finished(group) && m.options.Clock.Now().Before(deadline) {
			m.pause(ctx, pollPeriod)
		}
	}
}

func (m *Manager) observe(begin, end time.Time) {
	if m.options.Observe != nil {
		m.options.Observe(begin, end)
	}
}

func (m *Manager) finished(group []*v1.Pod) bool {
	return !slices.ContainsFunc(group, func(p *v1.Pod) bool { return !m.options.Pods.Finished(p.UID) })
}

func (m *Manager) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-m.options.Clock.After(d):
	}
}

// graceOf returns the grace period of a pod, in seconds, which is at most the time of its group.
func graceOf(p *v1.Pod, limit time.Duration) int64 {
	own := ptr.Deref(p.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	return min(own, int64(limit/time.Second))
}
