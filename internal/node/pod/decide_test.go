// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// randomPod returns a random pod, and the programs of its containers.
func randomPod(r *rand.Rand) (*v1.Pod, map[string][]program, time.Duration) {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	grace := int64(r.IntN(30))
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Generation: 1},
		Spec:       v1.PodSpec{RestartPolicy: policies[r.IntN(3)], TerminationGracePeriodSeconds: &grace},
	}
	if r.IntN(3) == 0 {
		pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "claim"}}
	}
	programs := map[string][]program{}
	for i := range r.IntN(4) {
		c := v1.Container{Name: fmt.Sprintf("init%d", i), Image: "i"}
		if r.IntN(2) == 0 {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			programs[c.Name] = randomPrograms(r, true)
		} else {
			programs[c.Name] = randomPrograms(r, false)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(3) {
		c := v1.Container{Name: fmt.Sprintf("app%d", i), Image: "i"}
		hook := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}
		if r.IntN(3) == 0 {
			c.Lifecycle = &v1.Lifecycle{PostStart: hook}
		} else if r.IntN(3) == 0 {
			c.Lifecycle = &v1.Lifecycle{PreStop: hook}
		}
		programs[c.Name] = randomPrograms(r, true)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	addRules(r, pod)
	if r.IntN(6) == 0 {
		pod.Spec.ActiveDeadlineSeconds = new(int64(1 + r.IntN(300)))
	}
	var deleteAt time.Duration
	if r.IntN(2) == 0 {
		deleteAt = time.Duration(1+r.IntN(600)) * time.Second
	}
	return pod, programs, deleteAt
}

// addRules gives some containers rules by which they, or all containers, are restarted when they fail.
func addRules(r *rand.Rand, pod *v1.Pod) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if r.IntN(4) > 0 {
				continue
			}
			if c.RestartPolicy == nil {
				c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
			}
			action := []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}[r.IntN(2)]
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    action,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
			}}
		}
	}
}

// randomPrograms returns programs of which the last never exits, if endless allows it, or succeeds.
func randomPrograms(r *rand.Rand, endless bool) []program {
	var list []program
	for range r.IntN(3) {
		list = append(list, program{runs: time.Duration(1+r.IntN(100)) * time.Second, code: int32(r.IntN(2))})
	}
	if endless && r.IntN(2) == 0 {
		return append(list, program{})
	}
	return append(list, program{runs: time.Second})
}

// TestCrashAnywhere runs random pods twice: undisturbed, and with actions that interleave and an agent that
// is killed, often or rarely, between any two of their steps and before and after each write. Both runs
// must end in the same state, with the same number of runs of each container and the same number of stops.
func TestCrashAnywhere(t *testing.T) {
	seeds, crashes := 300, 0
	if testing.Short() {
		seeds = 100
	}
	for seed := range uint64(seeds) {
		pod, programs, deleteAt := randomPod(rand.New(rand.NewPCG(seed, 1)))
		calm := newWorld(pod, programs, nil)
		rough := newWorld(pod, programs, rand.New(rand.NewPCG(seed, 2)))
		rough.odds = []int{0, 4, 25}[seed%3]
		for _, w := range []*world{calm, rough} {
			w.deleteAt = deleteAt
			w.run(time.Hour)
			for _, p := range w.problems {
				t.Errorf("seed %d after %d crashes: %s", seed, w.crashes, p)
			}
		}
		if diff := cmp.Diff(calm.outcome(), rough.outcome()); diff != "" {
			t.Errorf("seed %d: crashes changed the outcome:\n%s", seed, diff)
		}
		if diff := cmp.Diff(calm.started, rough.started); diff != "" {
			t.Errorf("seed %d: crashes changed which containers ran:\n%s", seed, diff)
		}
		if len(calm.stopped) != len(rough.stopped) {
			t.Errorf("seed %d: stopped %v, undisturbed %v", seed, rough.stopped, calm.stopped)
		}
		if deleteAt > 0 && (!rough.finished || !rough.removed || len(rough.runtime.Containers)+len(rough.runtime.Sandboxes) > 0) {
			t.Errorf("seed %d: the deleted pod left state behind", seed)
		}
		crashes += rough.crashes
		if t.Failed() {
			t.Fatalf("pod of seed %d: %s, programs %v, deleted at %v", seed, describe(pod), programs, deleteAt)
		}
	}
	if crashes < seeds {
		t.Errorf("only %d crashes in %d pods: the test is too weak", crashes, seeds)
	}
}

// TestDeleteAnywhere deletes random pods at any moment, gracefully or by force, with and without crashes:
// nothing is left, and no rule of the model is violated.
func TestDeleteAnywhere(t *testing.T) {
	for seed := range uint64(400) {
		pod, programs, _ := randomPod(rand.New(rand.NewPCG(seed, 3)))
		w := newWorld(pod, programs, rand.New(rand.NewPCG(seed, 4)))
		w.odds, w.unplug = []int{0, 10}[seed%2], 20
		w.deleteAt = time.Hour
		w.run(2 * time.Hour)
		for _, p := range w.problems {
			t.Errorf("seed %d after %d crashes: %s", seed, w.crashes, p)
		}
		if !w.removed || len(w.runtime.Containers)+len(w.runtime.Sandboxes) > 0 {
			t.Errorf("seed %d: the deleted pod left state behind", seed)
		}
		if t.Failed() {
			t.Fatalf("pod of seed %d: %s, programs %v", seed, describe(pod), programs)
		}
	}
}

func describe(pod *v1.Pod) string {
	text := fmt.Sprintf("%s, grace %d s", pod.Spec.RestartPolicy, *pod.Spec.TerminationGracePeriodSeconds)
	if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil {
		text += fmt.Sprintf(", at most %d s", *limit)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; IsSidecar(c) {
			text += ", sidecar " + c.Name
		}
	}
	for i := range pod.Spec.Containers {
		if l := pod.Spec.Containers[i].Lifecycle; l != nil {
			text += fmt.Sprintf(", %s with postStart %t preStop %t", pod.Spec.Containers[i].Name, l.PostStart != nil, l.PreStop != nil)
		}
	}
	return text
}
