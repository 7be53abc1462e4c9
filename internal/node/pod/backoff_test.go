// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestRestartDelays checks the documented backoff: immediately, 10 s, doubling to 5 minutes, and reset after a
// run of more than 10 minutes.
func TestRestartDelays(t *testing.T) {
	d, c := &decision{Input: Input{Pod: &v1.Pod{}}}, &v1.Container{Name: "c", Image: "i"}
	start := time.Unix(1_800_000_000, 0)
	var delays []time.Duration
	own := time.Duration(0)
	for _, ran := range []time.Duration{1, 1, 1, 1, 1, 1, 1, 1, 10 * 60, 11 * 60, 1, 1} {
		ended := runtime.Container{Hash: criconfig.Hash(d.Pod, c), BackOff: own, CreatedAt: start, FinishedAt: start.Add(ran * time.Second)}
		var delay time.Duration
		delay, own = d.restartDelay(c, ended)
		delays = append(delays, delay/time.Second)
	}
	want := []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300, 0, 10, 20}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("seconds of delay (-want +got):\n%s", diff)
	}
}

// TestMaxRestartDelay: a node may have another maximum (KEP-4603). One of less than 10 s is also the first delay.
func TestMaxRestartDelay(t *testing.T) {
	crashed := func(own time.Duration) Input {
		return scene(v1.Container{Name: "c"}).with(runtime.Container{
			Name: "c", State: runtime.Exited, ExitCode: 1, BackOff: own,
			CreatedAt: caseTime.Add(-time.Second), StartedAt: caseTime.Add(-time.Second), FinishedAt: caseTime,
		})
	}
	for _, test := range []struct{ own, longest, delay, next time.Duration }{
		{0, 0, 0, 10},
		{160, 0, 160, 300},
		{300, 0, 300, 300},
		{0, 300, 0, 10},
		{0, 60, 0, 10},
		{40, 60, 40, 60},
		{60, 60, 60, 60},
		{0, 1, 0, 1},
		{1, 1, 1, 1},
		{160, 15, 15, 15}, // an earlier agent had another maximum
		{1, 300, 1, 2},
	} {
		in := crashed(test.own * time.Second)
		in.MaxRestartDelay = test.longest * time.Second
		if out := Decide(in); test.delay > 0 {
			if want := fmt.Sprintf("back-off %v restarting failed container=c pod=p_ns(u)", test.delay*time.Second); out.Status.ContainerStatuses[0].State.Waiting.Message != want {
				t.Errorf("%+v: status %+v, want %q", test, out.Status.ContainerStatuses[0].State, want)
			}
			if len(out.Actions) > 0 || !out.Wake.Equal(caseTime.Add(test.delay*time.Second)) {
				t.Errorf("%+v: actions %v, and the next decision at %v", test, out.Actions, out.Wake)
			}
		}
		in.Now = caseTime.Add(test.delay * time.Second)
		if out := Decide(in); len(out.Actions) != 1 || out.Actions[0].BackOff != test.next*time.Second {
			t.Errorf("%+v: then actions %+v", test, out.Actions)
		}
	}
}

func TestChangedImageRestartsAtOnce(t *testing.T) {
	d := &decision{Input: Input{Pod: &v1.Pod{}}}
	ended := runtime.Container{Hash: criconfig.Hash(d.Pod, &v1.Container{Name: "c", Image: "old"}), BackOff: backOffMax}
	delay, next := d.restartDelay(&v1.Container{Name: "c", Image: "new"}, ended)
	if delay != 0 || next != backOffFirst {
		t.Errorf("delay %v, then %v, want none, then %v", delay, next, backOffFirst)
	}
}

func TestFailuresAreRetriedWithBackoff(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var f Failure
	var pauses []time.Duration
	for range 7 {
		f = f.Fail("r", "m", now)
		pauses = append(pauses, f.RetryAt.Sub(now))
	}
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestRestartPolicies(t *testing.T) {
	own := func(policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) *v1.Container {
		return &v1.Container{RestartPolicy: &policy, RestartPolicyRules: rules}
	}
	on42 := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}
	for _, test := range []struct {
		name string
		pod  v1.RestartPolicy
		c    *v1.Container
		code int32
		want bool
	}{
		{"always, success", v1.RestartPolicyAlways, &v1.Container{}, 0, true},
		{"on failure, success", v1.RestartPolicyOnFailure, &v1.Container{}, 0, false},
		{"on failure, failure", v1.RestartPolicyOnFailure, &v1.Container{}, 1, true},
		{"never, failure", v1.RestartPolicyNever, &v1.Container{}, 1, false},
		{"sidecar of a pod that never restarts", v1.RestartPolicyNever, own(v1.ContainerRestartPolicyAlways), 0, true},
		{"rule that matches", v1.RestartPolicyNever, own(v1.ContainerRestartPolicyNever, on42), 42, true},
		{"rule that does not match", v1.RestartPolicyAlways, own(v1.ContainerRestartPolicyNever, on42), 1, false},
	} {
		if got := restarts(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: test.pod}}, test.c, test.code); got != test.want {
			t.Errorf("%s: restarts %t, want %t", test.name, got, test.want)
		}
	}
}
