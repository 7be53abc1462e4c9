// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// TestEvictAnywhere evicts random pods at any moment, while the agent crashes between any two steps: each pod that was not
// over before ends as Failed, Evicted, or as Succeeded if its containers did, and no container is started after the eviction.
func TestEvictAnywhere(t *testing.T) {
	evicted, succeeded, crashes := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		pod, programs, deleteAt := randomPod(r)
		pod.Spec.ActiveDeadlineSeconds = nil
		w := newWorld(pod, programs, rand.New(rand.NewPCG(seed, 6)))
		w.odds, w.deleteAt = []int{0, 4, 25}[seed%3], deleteAt
		w.evictAt = time.Duration(1+r.IntN(200)) * time.Second
		w.run(time.Hour)
		crashes += w.crashes
		for _, p := range w.problems {
			t.Errorf("seed %d after %d crashes: %s", seed, w.crashes, p)
		}
		if w.stored == nil || w.gone {
			continue // it was over, or deleted
		}
		evicted++
		s := w.pod.Status
		phase, reason, message := v1.PodFailed, "Evicted", "model"
		if allSucceeded(s.ContainerStatuses) {
			phase, reason, message = v1.PodSucceeded, "", ""
			succeeded++
		}
		if s.Phase != phase || s.Reason != reason || s.Message != message || w.anyRunning() {
			t.Errorf("seed %d after %d crashes: phase %s, %s: %s, running %t", seed, w.crashes, s.Phase, s.Reason, s.Message, w.anyRunning())
		}
		if c := conditionOf(s.Conditions, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue || c.Reason != "TerminationByKubelet" || c.Message != "model" {
			t.Errorf("seed %d: DisruptionTarget is %+v", seed, c)
		}
		if t.Failed() {
			t.Fatalf("pod of seed %d: %s, programs %v, evicted at %v", seed, describe(pod), programs, w.evictAt)
		}
	}
	if evicted < 50 || succeeded == 0 || crashes < 300 {
		t.Errorf("%d pods evicted, of which %d succeeded, %d crashes: the test is too weak", evicted, succeeded, crashes)
	}
}

// allSucceeded reports whether all containers have ended with the exit code 0.
func allSucceeded(containers []v1.ContainerStatus) bool {
	return !slices.ContainsFunc(containers, func(c v1.ContainerStatus) bool {
		return c.State.Terminated == nil || c.State.Terminated.ExitCode != 0
	})
}

// TestEvictionGrace: the grace period of an eviction replaces that of the spec, and that of a deletion is not extended.
func TestEvictionGrace(t *testing.T) {
	for name, c := range map[string]struct {
		grace    int64
		deletion *int64
		want     string
	}{
		"shorter than the spec's":  {1, nil, "StopContainer/c-0 in 1s"},
		"none":                     {0, nil, "StopContainer/c-0 in 0s"},
		"of a deleted pod":         {5, new(int64(20)), "StopContainer/c-0 in 5s"},
		"longer than its deletion": {5, new(int64(3)), "StopContainer/c-0 in 3s"},
	} {
		in := scene(v1.Container{Name: "c"}).with(runningRun("c"))
		in.Memory.Evicted = &Eviction{Refusal: Refusal{Reason: "Evicted"}, GraceSeconds: c.grace}
		if c.deletion != nil {
			now := in.Pod.CreationTimestamp
			in.Pod.DeletionTimestamp, in.Pod.DeletionGracePeriodSeconds = &now, c.deletion
		}
		out := Decide(in)
		if diff := cmp.Diff([]string{c.want}, actionsOf(out)); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
		if !out.Stopping || IsOver(out.Status.Phase) {
			t.Errorf("%s: stopping %t, phase %s while a container runs", name, out.Stopping, out.Status.Phase)
		}
	}
}

// TestDisruptionIsKept: the writer keeps the agent's own DisruptionTarget, and that of other clients if the agent sets none.
func TestDisruptionIsKept(t *testing.T) {
	of := func(reason string) []v1.PodCondition {
		return []v1.PodCondition{{Type: v1.DisruptionTarget, Reason: reason}}
	}
	for name, c := range map[string]struct {
		own, api []v1.PodCondition
		want     string
	}{
		"the agent's is new":    {of("TerminationByKubelet"), nil, "TerminationByKubelet"},
		"the agent's is newer":  {of("TerminationByKubelet"), of("EvictionByEvictionAPI"), "TerminationByKubelet"},
		"another client's":      {nil, of("EvictionByEvictionAPI"), "EvictionByEvictionAPI"},
		"removed by its client": {of("EvictionByEvictionAPI"), nil, ""},
	} {
		s := v1.PodStatus{Conditions: c.own}
		keepOthersFields(&s, &v1.PodStatus{Conditions: c.api})
		got := ""
		for _, condition := range s.Conditions {
			got += condition.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSaveEviction: what is stored is what the next agent loads.
func TestSaveEviction(t *testing.T) {
	l := rootdir.Layout{Root: t.TempDir()}
	if e := LoadEviction(l, "u"); e != nil {
		t.Errorf("loaded %+v before there is one", e)
	}
	want := Eviction{Refusal: Refusal{Reason: "Evicted", Message: "m"}, GraceSeconds: 7, Disrupts: true}
	if err := want.Save(l, "u"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, LoadEviction(l, "u")); diff != "" {
		t.Error(diff)
	}
}

// The first eviction decides why a pod ends; a later one, such as that of a shutdown, can only leave it less time.
func TestEvictTwice(t *testing.T) {
	for _, test := range []struct{ first, second, want int64 }{{600, 5, 5}, {5, 600, 5}} {
		s := newStageTest(t, testPod())
		s.Evict(Eviction{Refusal: Refusal{Reason: "Evicted", Message: "memory"}, GraceSeconds: test.first, Disrupts: true})
		s.Evict(Eviction{Refusal: Refusal{Reason: "Terminated"}, GraceSeconds: test.second})
		s.takeInput()
		want := &Eviction{Refusal: Refusal{Reason: "Evicted", Message: "memory"}, GraceSeconds: test.want, Disrupts: true}
		if diff := cmp.Diff(want, s.memory.Evicted); diff != "" {
			t.Errorf("%d s, then %d s (-want +got):\n%s", test.first, test.second, diff)
		}
	}
}
