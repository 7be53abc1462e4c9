// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

var _ nodepod.Probes = &Manager{}

// script holds the outcomes of attempts, in order, by probe. The last one repeats.
type script struct {
	*Manager
	begin    time.Time
	recorder *record.FakeRecorder

	mu       sync.Mutex
	outcomes map[*v1.Probe][]outcome
	attempts map[*v1.Probe]int
	at       []string // when attempts were, as "kind seconds"
	names    map[*v1.Probe]string
	results  []string
}

// newScript must be called inside a synctest bubble, whose clock the probes use.
func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{
		begin: time.Now(), recorder: record.NewFakeRecorder(1000),
		outcomes: map[*v1.Probe][]outcome{}, attempts: map[*v1.Probe]int{}, names: map[*v1.Probe]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.Manager = New(ctx, Options{Recorder: s.recorder, Clock: clock.RealClock{}})
	s.attempt = s.answer
	t.Cleanup(func() { cancel(); s.Wait() })
	return s
}

func (s *script) answer(_ context.Context, _ *nodepod.ProbeTarget, probe *v1.Probe) (outcome, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.outcomes[probe]
	n := s.attempts[probe]
	s.attempts[probe]++
	s.at = append(s.at, fmt.Sprintf("%s %v", s.names[probe], time.Since(s.begin).Seconds()))
	found := list[min(n, len(list)-1)]
	if found == unknown {
		return unknown, "", errors.New("odd")
	}
	return found, "said " + string(found), nil
}

func (s *script) probe(name string, period, failures, successes int32, outcomes ...outcome) *v1.Probe {
	probe := &v1.Probe{PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: successes}
	s.outcomes[probe], s.names[probe] = outcomes, name
	return probe
}

func (s *script) start(container *v1.Container, change ...func(*nodepod.ProbeTarget)) {
	target := nodepod.ProbeTarget{
		Pod:       &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: v1.PodSpec{}},
		Container: container, ContainerID: "id", StartedAt: metav1.NewTime(s.begin),
	}
	for _, c := range change {
		c(&target)
	}
	s.Start(target, func(r nodepod.ProbeResult) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results = append(s.results, fmt.Sprintf("%v %s %v", time.Since(s.begin).Seconds(), r.Kind, r.Success))
	})
}

// pass advances time and waits until the workers have made the due attempts.
func pass(seconds int) {
	time.Sleep(time.Duration(seconds) * time.Second)
	synctest.Wait()
}

func (s *script) expect(t *testing.T, attempts, results []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(attempts, s.at); attempts != nil && diff != "" {
		t.Errorf("attempts: %s", diff)
	}
	if diff := cmp.Diff(results, s.results); diff != "" {
		t.Errorf("results: %s", diff)
	}
}

func TestFirstAttemptIsImmediate(t *testing.T) { synctest.Test(t, testFirstAttemptIsImmediate) }

func testFirstAttemptIsImmediate(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{ReadinessProbe: s.probe("r", 10, 3, 1, success)})
	pass(25)
	s.expect(t, []string{"r 0", "r 10", "r 20"}, []string{"0 Readiness true"})
}

func TestInitialDelayCountsFromTheStart(t *testing.T) {
	synctest.Test(t, testInitialDelayCountsFromTheStart)
}

func testInitialDelayCountsFromTheStart(t *testing.T) {
	s := newScript(t)
	probe := s.probe("r", 10, 3, 1, success)
	probe.InitialDelaySeconds = 7
	time.Sleep(5 * time.Second) // the container started before its probes
	s.start(&v1.Container{ReadinessProbe: probe})
	pass(15)
	s.expect(t, []string{"r 7", "r 17"}, []string{"7 Readiness true"})
}

func TestThresholds(t *testing.T) { synctest.Test(t, testThresholds) }

func testThresholds(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{ReadinessProbe: s.probe("r", 1, 3, 2,
		failure, failure, success, failure, failure, failure, success, failure, success, warning, success, failure, failure, success)})
	pass(20)
	s.expect(t, nil, []string{"5 Readiness false", "9 Readiness true"})
}

func TestFailedLivenessProbeStops(t *testing.T) { synctest.Test(t, testFailedLivenessProbeStops) }

func testFailedLivenessProbeStops(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{LivenessProbe: s.probe("l", 2, 2, 1, success, failure, failure)})
	pass(20)
	s.expect(t, []string{"l 0", "l 2", "l 4"}, []string{"0 Liveness true", "4 Liveness false"})

	// Its next run is probed again.
	s.Stop("id")
	s.start(&v1.Container{LivenessProbe: s.probe("l", 2, 2, 1, success)}, func(target *nodepod.ProbeTarget) { target.ContainerID = "id2" })
	pass(1)
	if n := len(s.results); n != 3 {
		t.Errorf("results: %v", s.results)
	}
}

func TestStartupComesFirst(t *testing.T) { synctest.Test(t, testStartupComesFirst) }

func testStartupComesFirst(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{
		StartupProbe:   s.probe("s", 3, 5, 1, failure, failure, success),
		LivenessProbe:  s.probe("l", 4, 3, 1, success),
		ReadinessProbe: s.probe("r", 4, 3, 1, success),
	})
	pass(5)
	s.expect(t, []string{"s 0", "s 3"}, nil)
	pass(4)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.attempts[firstOf(s, "s")]; n != 3 {
		t.Errorf("%d startup probes", n)
	}
	if len(s.results) != 3 || s.results[0] != "6 Startup true" {
		t.Errorf("results %v", s.results)
	}
}

func firstOf(s *script, name string) *v1.Probe {
	for probe, n := range s.names {
		if n == name {
			return probe
		}
	}
	return nil
}

func TestFailedStartupProbeBlocksOtherProbes(t *testing.T) {
	synctest.Test(t, testAFailedStartupProbeRestsAndHoldsTheOthers)
}

func testAFailedStartupProbeRestsAndHoldsTheOthers(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{StartupProbe: s.probe("s", 1, 2, 1, failure), ReadinessProbe: s.probe("r", 1, 1, 1, success)})
	pass(5)
	s.expect(t, []string{"s 0", "s 1"}, []string{"1 Startup false"})
}

func TestStartedBeforeTheAgentNeedsNoStartupProbe(t *testing.T) {
	synctest.Test(t, testStartedBeforeTheAgentNeedsNoStartupProbe)
}

func testStartedBeforeTheAgentNeedsNoStartupProbe(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{StartupProbe: s.probe("s", 1, 2, 1, failure), ReadinessProbe: s.probe("r", 9, 1, 1, success)},
		func(target *nodepod.ProbeTarget) { target.Started = true })
	pass(2)
	s.expect(t, []string{"r 0"}, []string{"0 Readiness true"})
}

func TestProbesAreSpreadAfterAgentRestart(t *testing.T) {
	synctest.Test(t, testAfterARestartProbesAreSpread)
}

func testAfterARestartProbesAreSpread(t *testing.T) {
	s := newScript(t)
	old := &target{ProbeTarget: nodepod.ProbeTarget{StartedAt: metav1.NewTime(s.begin.Add(-time.Minute))}}
	fresh := &target{ProbeTarget: nodepod.ProbeTarget{StartedAt: metav1.NewTime(s.begin)}}
	spread := false
	for range 100 {
		d := s.jitter(old, 10*time.Second)
		if d < 0 || d >= 10*time.Second {
			t.Fatalf("delayed by %v of 10 s", d)
		}
		spread = spread || d > 0
	}
	if !spread {
		t.Error("all probes have the same delay")
	}
	if d := s.jitter(fresh, 10*time.Second); d != 0 {
		t.Errorf("the probes of a new container are delayed by %v", d)
	}
	time.Sleep(10 * time.Second)
	if d := s.jitter(old, 10*time.Second); d != 0 {
		t.Errorf("long after the restart, probes are delayed by %v", d)
	}
}

func TestErrorsAreNoResult(t *testing.T) { synctest.Test(t, testErrorsAreNoResult) }

func testErrorsAreNoResult(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{ReadinessProbe: s.probe("r", 1, 1, 1, unknown, unknown, success, unknown)})
	pass(3)
	s.expect(t, nil, []string{"0 Readiness true"})
	if got := <-s.recorder.Events; got != "Warning Unhealthy Readiness probe errored and resulted in unknown state: odd" {
		t.Error(got)
	}
}

func TestEvents(t *testing.T) { synctest.Test(t, testEvents) }

func testEvents(t *testing.T) {
	s := newScript(t)
	s.start(&v1.Container{LivenessProbe: s.probe("l", 1, 3, 1, warning, failure, success)})
	pass(2)
	for _, want := range []string{"Warning ProbeWarning Liveness probe warning: said warning", "Warning Unhealthy Liveness probe failed: said failure"} {
		if got := <-s.recorder.Events; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStopping(t *testing.T) { synctest.Test(t, testStopping) }

func testStopping(t *testing.T) {
	s := newScript(t)
	container := &v1.Container{LivenessProbe: s.probe("l", 1, 1, 1, success), ReadinessProbe: s.probe("r", 1, 1, 1, success, failure)}
	s.start(container)
	s.start(container) // a second call does nothing
	synctest.Wait()
	s.StopLiveness("id")
	pass(2)
	if l, r := s.attempts[container.LivenessProbe], s.attempts[container.ReadinessProbe]; l != 1 || r != 3 {
		t.Errorf("%d liveness and %d readiness probes", l, r)
	}
	s.Stop("id")
	s.Stop("id")
	s.StopLiveness("id")
	pass(2)
	if r := s.attempts[container.ReadinessProbe]; r != 3 {
		t.Errorf("%d readiness probes", r)
	}
}
