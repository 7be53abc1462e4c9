// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// period is the interval at which the node is measured, and nearPeriod the interval near a threshold for memory, which may be
	// used up fast, and while evicted pods end.
	period     = 10 * time.Second
	nearPeriod = time.Second
	// cleanupLimit is the time that an evicted pod has to end before another one is evicted.
	cleanupLimit = 30 * time.Second
	// hardGraceSeconds is the grace period of pods that must end at once.
	hardGraceSeconds = 1
)

// Eviction is why and how one pod is evicted.
type Eviction struct {
	Message      string
	GraceSeconds int64
	// Disrupts is set if the node, and not the pod, is short of something.
	Disrupts bool
}

// ReclaimFunc is a function that is a [Reclaimer].
type ReclaimFunc func(ctx context.Context) error

// Reclaim implements [Reclaimer].
func (f ReclaimFunc) Reclaim(ctx context.Context) error { return f(ctx) }

// Reclaimer deletes what no pod needs: dead containers, or images.
type Reclaimer interface {
	Reclaim(ctx context.Context) error
}

// Node is what a Manager measures and acts upon.
type Node interface {
	// Layout returns how data is spread over file systems.
	Layout(ctx context.Context) (Layout, error)
	// Observe measures the node.
	Observe(ctx context.Context) (Observations, error)
	// Pods returns the pods that are not over.
	Pods() []*v1.Pod
	// Usages measures pods.
	Usages(ctx context.Context, pods []*v1.Pod) Usages
	// Evict makes a pod end and fail. It returns false if the pod is over, or is being evicted.
	Evict(pod *v1.Pod, e Eviction) bool
	// IsEvicting reports whether a pod is being evicted and has not yet released all that it uses.
	IsEvicting(uid types.UID) bool
}

// Options are what a Manager depends on.
type Options struct {
	Config Config
	Node   Node
	Clock  clock.WithTicker
	// Recorder records events on pods, and those on the node with Reference.
	Recorder  record.EventRecorder
	Reference *v1.ObjectReference
	// Containers and Images are asked to delete before pods are evicted for disk space. They may be nil.
	Containers, Images Reclaimer
	// Evicted is called, if set, with the signal of each eviction.
	Evicted func(Signal)
	// EvictedBy is called, if set, with the age of each measurement by which a pod is evicted.
	EvictedBy func(s Signal, age time.Duration)
	// Changed is called when the node conditions have changed.
	Changed func()
	// Notice is called, if set, with a sentence about each condition that begins to hold, without the name of the node.
	Notice func(sentence string)
}

// Manager keeps the node above its thresholds.
type Manager struct {
	options Options

	mu         sync.Mutex
	conditions []v1.NodeConditionType

	// Only sync uses the following.
	layout     *Layout
	thresholds []Threshold
	state      State
	waiting    map[types.UID]time.Time // pods that are being evicted, and since when
}

// New returns a Manager, which does nothing before Run.
func New(o Options) *Manager {
	return &Manager{options: o, waiting: map[types.UID]time.Time{}}
}

// Record sets the recorder of events and the reference of the node. It must be called before Run, if Options do not have
// them.
func (m *Manager) Record(recorder record.EventRecorder, node *v1.ObjectReference) {
	m.options.Recorder, m.options.Reference = recorder, node
}

// Run measures the node and evicts pods until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := m.sync(ctx)
		select {
		case <-ctx.Done():
		case <-m.options.Clock.After(pause):
		}
	}
}

// Conditions returns which of the conditions MemoryPressure, DiskPressure and PIDPressure hold.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions
}

// sync measures the node once, and acts upon what it finds. It returns when to do so again.
func (m *Manager) sync(ctx context.Context) (pause time.Duration) {
	logger := klog.FromContext(ctx)
	if err := m.readLayout(ctx); err != nil {
		if ctx.Err() == nil {
			logger.Error(err, "Cannot tell which file systems the node has, will retry")
		}
		return period
	}
	seen, err := m.options.Node.Observe(ctx)
	if err != nil && ctx.Err() == nil {
		logger.Error(err, "Cannot measure all of the node's resources")
	}
	now := m.options.Clock.Now()
	state, out := m.state.Step(m.thresholds, m.options.Config.Transition, seen, now)
	m.state = state
	m.publish(logger, out, seen)
	pods := slices.DeleteFunc(m.options.Node.Pods(), func(p *v1.Pod) bool { return m.options.Node.IsEvicting(p.UID) || IsCritical(p) })
	waits := m.isWaiting(now)
	if usages := m.usages(ctx, pods, len(out.Act) > 0); !m.evictOverLimit(logger, pods, usages) && !waits && len(out.Act) > 0 {
		m.relieve(ctx, pods, usages, out.Act, seen)
	}
	if len(m.waiting) > 0 || isNear(m.thresholds, seen) {
		return nearPeriod
	}
	return period
}

// readLayout reads the layout of file systems, once.
func (m *Manager) readLayout(ctx context.Context) error {
	if m.layout != nil {
		return nil
	}
	layout, err := m.options.Node.Layout(ctx)
	if err != nil {
		return err
	}
	m.layout, m.thresholds = &layout, layout.adapt(m.options.Config.Thresholds)
	return nil
}

// publish makes the conditions visible.
func (m *Manager) publish(logger klog.Logger, out Outcome, seen Observations) {
	m.mu.Lock()
	before := m.conditions
	m.conditions = out.Conditions
	m.mu.Unlock()
	if slices.Equal(before, out.Conditions) {
		return
	}
	logger.Info("The node's pressure has changed", "conditions", out.Conditions)
	m.options.Changed()
	for _, condition := range out.Conditions {
		if m.options.Notice != nil && !slices.Contains(before, condition) {
			m.options.Notice(notice(condition, out.Met, seen))
		}
	}
}

// isWaiting reports whether a pod that was evicted a short time ago still uses what it is to release.
func (m *Manager) isWaiting(now time.Time) (waits bool) {
	for _, p := range m.options.Node.Pods() {
		if _, known := m.waiting[p.UID]; !known && m.options.Node.IsEvicting(p.UID) {
			m.waiting[p.UID] = now // an earlier agent has evicted it
		}
	}
	for uid, since := range m.waiting {
		if !m.options.Node.IsEvicting(uid) {
			delete(m.waiting, uid)
			continue
		}
		waits = waits || now.Sub(since) < cleanupLimit
	}
	return waits
}

// usages measures pods, if that matters.
func (m *Manager) usages(ctx context.Context, pods []*v1.Pod, pressed bool) Usages {
	if len(pods) == 0 || !pressed && !m.options.Config.LocalLimits {
		return nil
	}
	return m.options.Node.Usages(ctx, pods)
}

// evictOverLimit evicts all pods that exceed a limit of local storage, and reports whether there were any.
func (m *Manager) evictOverLimit(logger klog.Logger, pods []*v1.Pod, usages Usages) (evicted bool) {
	if !m.options.Config.LocalLimits {
		return false
	}
	for _, pod := range pods {
		usage, ok := usages[pod.UID]
		if !ok {
			continue
		}
		if v := OverLimit(pod, usage, *m.layout); v != nil && m.evict(logger, pod, v.Signal, Eviction{Message: v.Message, GraceSeconds: hardGraceSeconds}, nil) {
			evicted = true
		}
	}
	return evicted
}

// relieve reclaims the resource of the first threshold: what no pod needs and, if that does not suffice, one pod.
func (m *Manager) relieve(ctx context.Context, pods []*v1.Pod, usages Usages, act []Threshold, seen Observations) {
	logger := klog.FromContext(ctx)
	worst := act[0]
	name := worst.Signal.resource()
	m.options.Recorder.Eventf(m.options.Reference, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if m.reclaim(ctx, worst.Signal) {
		logger.Info("Deleting dead containers and unused images was enough", "resource", name)
		return
	}
	if len(pods) == 0 {
		logger.Info("A threshold is met, and there is no pod to evict", "signal", worst.Signal)
		return
	}
	for _, pod := range Rank(worst.Signal, *m.layout, pods, usages) {
		message, annotations := pressureMessage(name, pod, usages, act, seen)
		if m.evict(logger, pod, worst.Signal, Eviction{Message: message, GraceSeconds: m.grace(worst, pod), Disrupts: true}, annotations) {
			m.countAges(act, seen)
			return
		}
	}
}

// countAges counts the measurements by which a pod was evicted.
func (m *Manager) countAges(act []Threshold, seen Observations) {
	if m.options.EvictedBy == nil {
		return
	}
	for _, t := range act {
		if observed, ok := seen[t.Signal]; ok && !observed.Time.IsZero() {
			m.options.EvictedBy(t.Signal, m.options.Clock.Since(observed.Time))
		}
	}
}

// reclaim has dead containers and unused images deleted, and reports whether no threshold is met then.
func (m *Manager) reclaim(ctx context.Context, s Signal) (enough bool) {
	containers, images := m.layout.reclaimable(s)
	var use []Reclaimer
	if containers && m.options.Containers != nil {
		use = append(use, m.options.Containers)
	}
	if images && m.options.Images != nil {
		use = append(use, m.options.Images) // after the containers that use them
	}
	if len(use) == 0 {
		return false
	}
	for _, reclaimer := range use {
		if err := reclaimer.Reclaim(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot delete all that no pod needs", "signal", s)
		}
	}
	seen, err := m.options.Node.Observe(ctx)
	return err == nil && !slices.ContainsFunc(m.thresholds, func(t Threshold) bool {
		observed, ok := seen[t.Signal]
		return ok && t.isMet(observed, true)
	})
}

// grace returns the grace period of a pod that is evicted for a threshold.
func (m *Manager) grace(t Threshold, pod *v1.Pod) int64 {
	if t.IsHard() {
		return hardGraceSeconds
	}
	limit, own := m.options.Config.MaxPodGraceSeconds, pod.Spec.TerminationGracePeriodSeconds
	switch {
	case own == nil:
		return max(limit, 0)
	case limit < 0:
		return *own
	}
	return min(limit, *own)
}

// evict evicts a pod, unless it has ended meanwhile.
func (m *Manager) evict(logger klog.Logger, pod *v1.Pod, s Signal, e Eviction, annotations map[string]string) bool {
	if !m.options.Node.Evict(pod, e) {
		return false
	}
	m.waiting[pod.UID] = m.options.Clock.Now()
	if m.options.Evicted != nil {
		m.options.Evicted(s)
	}
	logger.Info("Evicting a pod", "pod", klog.KObj(pod), "signal", s, "message", e.Message)
	m.options.Recorder.AnnotatedEventf(pod, annotations, v1.EventTypeWarning, Reason, "%s", e.Message)
	return true
}

// isNear reports whether memory is so near a threshold that it could be used up before the next regular measurement.
func isNear(thresholds []Threshold, seen Observations) bool {
	return slices.ContainsFunc(thresholds, func(t Threshold) bool {
		observed, ok := seen[t.Signal]
		if !ok || t.Signal.resource() != v1.ResourceMemory {
			return false
		}
		least := t.Value.Of(observed.Capacity)
		return observed.Available.Value() < 2*least.Value()
	})
}
