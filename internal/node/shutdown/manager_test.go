// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/pod"
)

func withPriority(name string, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
}

func byPriority(periods ...int64) *kubeletv1beta1.KubeletConfiguration {
	c := &kubeletv1beta1.KubeletConfiguration{}
	for i := 0; i < len(periods); i += 2 {
		c.ShutdownGracePeriodByPodPriority = append(c.ShutdownGracePeriodByPodPriority,
			kubeletv1beta1.ShutdownGracePeriodByPodPriority{Priority: int32(periods[i]), ShutdownGracePeriodSeconds: periods[i+1]})
	}
	return c
}

func TestPeriods(t *testing.T) {
	simple := &kubeletv1beta1.KubeletConfiguration{}
	if got := periodsOf(simple); got != nil {
		t.Errorf("without a configuration: %v", got)
	}
	simple.ShutdownGracePeriod.Duration, simple.ShutdownGracePeriodCriticalPods.Duration = 30*time.Second, 10*time.Second
	want := []period{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}
	if got := periodsOf(simple); !slices.Equal(got, want) || totalOf(got) != 30*time.Second {
		t.Errorf("got %v, want %v", got, want)
	}
	want = []period{{-5, 3 * time.Second}, {10, time.Second}}
	if got := periodsOf(byPriority(10, 1, -5, 3)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGroups(t *testing.T) {
	periods := periodsOf(byPriority(0, 1, 10, 1, 100, 1))
	pods := []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, withPriority("below", -7), withPriority("nine", 9),
		withPriority("ten", 10), withPriority("ninety", 90), withPriority("hundred", 100), withPriority("above", 1000)}
	var got [][]string
	for _, group := range groupsOf(periods, pods) {
		var names []string
		for _, p := range group {
			names = append(names, p.Name)
		}
		got = append(got, names)
	}
	want := [][]string{{"none", "below", "nine"}, {"ten", "ninety"}, {"hundred", "above"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// world is a machine with pods and a logind. All of it is under one lock; its log has what happened.
type world struct {
	mu        sync.Mutex
	clock     *testingclock.FakeClock
	log       []string
	pods      []*v1.Pod
	ends      map[types.UID]time.Time // when a terminated pod has ended
	takes     map[types.UID]time.Duration
	delay     time.Duration
	imminent  bool
	shutdowns chan bool
	next      func() chan bool // of each connection; nil means shutdowns
	kill      int              // the manager is killed when the log gets this line; 0: never
	killed    bool
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%ds ", int(w.clock.Since(began).Seconds()))+fmt.Sprintf(format, args...))
	if len(w.log) == w.kill {
		w.killed = true
		runtime.Goexit() // releases the lock, as the kernel does
	}
}

func (w *world) logged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

func (w *world) Active() []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(w.pods), func(p *v1.Pod) bool { return w.isEnding(p.UID) && w.Finished(p.UID) })
}

// Evict ends a pod, unless it is being ended: then its grace period may become shorter.
func (w *world) Evict(uid types.UID, e pod.Eviction) bool {
	first := !w.isEnding(uid)
	w.mu.Lock()
	if end := w.clock.Now().Add(min(w.takes[uid], time.Duration(e.GraceSeconds)*time.Second)); first || end.Before(w.ends[uid]) {
		w.ends[uid] = end
	}
	w.mu.Unlock()
	if first {
		w.note("%s: %s within %ds", uid, e.Reason, e.GraceSeconds)
	}
	return first && e.Disrupts
}

func (w *world) isEnding(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ending := w.ends[uid]
	return ending
}

func (w *world) Finished(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.clock.Now().Before(w.ends[uid])
}

func (w *world) InhibitDelay() (time.Duration, error) { return w.delay, nil }
func (w *world) SetInhibitDelay(delay time.Duration) error {
	w.note("delay %v", delay)
	w.delay = delay
	return nil
}
func (w *world) Inhibit() (io.Closer, error) {
	w.mu.Lock()
	imminent := w.imminent
	w.mu.Unlock()
	if imminent {
		return nil, errors.New("the operation inhibition has been requested for is already running")
	}
	w.note("inhibit")
	return &lock{world: w}, nil
}
func (w *world) Shutdowns() (bool, <-chan bool, error) {
	if w.next != nil {
		return false, w.next(), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imminent, w.shutdowns, nil
}

// announce announces a shutdown, or its cancellation.
func (w *world) announce(imminent bool) {
	w.mu.Lock()
	w.imminent = imminent
	w.mu.Unlock()
	w.shutdowns <- imminent
}
func (w *world) Close() error { return nil }

type lock struct {
	world *world
	once  sync.Once
}

func (l *lock) Close() error {
	l.once.Do(func() { l.world.note("release") })
	return nil
}

var began = time.Unix(1_800_000_000, 0)

func newWorld(takes map[types.UID]time.Duration, pods ...*v1.Pod) *world {
	return &world{clock: testingclock.NewFakeClock(began), pods: pods, takes: takes, ends: map[types.UID]time.Time{},
		delay: 5 * time.Second, shutdowns: make(chan bool, 4)}
}

func (w *world) start(t *testing.T, c *kubeletv1beta1.KubeletConfiguration) *Manager {
	m := New(Options{Config: c, Connect: func() (Logind, error) { return w, nil }, Pods: w, Clock: w.clock,
		Changed: func() {}, Event: func(_, reason, message string) { w.note("%s: %s", reason, message) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

// until moves the clock until the log has n lines.
func (w *world) until(t *testing.T, n int) []string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if log := w.logged(); len(log) >= n {
			return log
		}
		if w.clock.HasWaiters() {
			w.clock.Step(pollPeriod)
		}
	}
	t.Fatalf("only %q", w.logged())
	return nil
}

func TestPodsEndByPriority(t *testing.T) {
	w := newWorld(map[types.UID]time.Duration{"quick": 2 * time.Second, "stuck": time.Hour, "critical": time.Second},
		withPriority("critical", 100), withPriority("quick", 0), withPriority("stuck", 10))
	m := w.start(t, byPriority(0, 20, 10, 5, 50, 7, 100, 10))
	w.until(t, 2)
	if m.Problem() != nil || m.Refuse() != nil {
		t.Error("shutting down before the announcement")
	}
	w.announce(true)
	log := w.until(t, 7)
	if m.Problem() == nil || m.Refuse() == nil || m.Refuse().Reason != "NodeShutdown" {
		t.Errorf("not shutting down: %v, %v", m.Problem(), m.Refuse())
	}
	want := []string{"0s delay 42s", "0s inhibit", "0s Shutdown: Shutdown manager detected shutdown event",
		"0s quick: Terminated within 20s", "2s stuck: Terminated within 5s", "7s critical: Terminated within 10s", "8s release"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	w.announce(false)
	want = append(want, "8s Shutdown: Shutdown manager detected shutdown cancellation", "8s inhibit")
	if diff := cmp.Diff(want, w.until(t, 9)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if m.Problem() != nil || m.Refuse() != nil {
		t.Error("still shutting down after the cancellation")
	}
}

// TestStartDuringShutdown: an agent that starts during a shutdown, which logind lets no program delay, ends the pods and
// admits none. When the shutdown is cancelled, it delays the next one.
func TestStartDuringShutdown(t *testing.T) {
	w := newWorld(map[types.UID]time.Duration{"first": time.Second}, withPriority("second", 10), withPriority("first", 0))
	w.imminent = true
	m := w.start(t, byPriority(0, 20, 10, 5))
	want := []string{"0s Shutdown: Shutdown manager detected shutdown event", "0s first: Terminated within 20s", "1s second: Terminated within 5s"}
	if diff := cmp.Diff(want, w.until(t, 3)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if m.Problem() == nil || m.Refuse() == nil {
		t.Error("not shutting down")
	}
	w.announce(false)
	want = append(want, "1s Shutdown: Shutdown manager detected shutdown cancellation", "1s delay 25s", "1s inhibit")
	if diff := cmp.Diff(want, w.until(t, 6)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestKilled: an agent that is killed after any step is followed by one that goes on. Each pod is ended once, those of a
// group after those of the groups below, and logind allows the delay.
func TestKilled(t *testing.T) {
	for kill := 1; ; kill++ {
		w := newWorld(map[types.UID]time.Duration{"quick": 2 * time.Second, "other": time.Second, "stuck": time.Hour, "critical": time.Second},
			withPriority("critical", 100), withPriority("quick", 0), withPriority("stuck", 10), withPriority("other", 0))
		w.kill = kill
		c := byPriority(0, 20, 10, 5, 100, 10)
		m := w.start(t, c)
		announced, killed := false, false
		w.advance(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.killed && !killed {
				killed = true
				w.shutdowns = make(chan bool, 4) // of the next connection
				m = w.start(t, c)
			}
			if !announced && slices.ContainsFunc(w.log, func(line string) bool { return strings.HasSuffix(line, " inhibit") }) && killed == w.killed {
				announced, w.imminent = true, true
				w.shutdowns <- true
			}
			return announced && len(w.ends) == len(w.pods) && !w.clock.Now().Before(w.ends["critical"])
		})
		w.advance(t, func() bool { return m.Problem() != nil && m.Refuse() != nil }) // also if it was started last
		if w.delay != 35*time.Second {
			t.Errorf("killed after line %d: the delay is %v", kill, w.delay)
		}
		var order []string
		for _, line := range w.logged() {
			if at, text, _ := strings.Cut(line, " "); strings.Contains(text, ": Terminated") {
				order = append(order, at+" "+text)
			}
		}
		want := []string{"0s quick: Terminated within 20s", "0s other: Terminated within 20s", "2s stuck: Terminated within 5s", "7s critical: Terminated within 10s"}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("killed after line %d (-want +got):\n%s", kill, diff)
		}
		if !killed {
			if kill < 8 {
				t.Errorf("only %d lines: %q", kill, w.logged())
			}
			return
		}
	}
}

// advance moves the clock until a condition holds.
func (w *world) advance(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %q", w.logged())
		}
		if w.clock.HasWaiters() {
			w.clock.Step(pollPeriod)
		}
	}
}

// TestReconnect: after the connection ended, another one is made.
func TestReconnect(t *testing.T) {
	w := newWorld(nil)
	w.delay = time.Hour
	ended := make(chan bool)
	close(ended)
	connections := []chan bool{ended, make(chan bool)}
	w.next = func() chan bool {
		next := connections[0]
		connections = connections[1:]
		return next
	}
	w.start(t, byPriority(0, 1))
	if log := w.until(t, 3); !slices.Equal([]string{log[0][3:], log[1][3:], log[2][3:]}, []string{"inhibit", "release", "inhibit"}) {
		t.Errorf("log %q", log)
	}
}
