// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// counts has what was counted, in order.
type counts []string

func (c *counts) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

func (c *counts) PodAdmitted(p *v1.Pod)            { c.add("admitted %s", p.Name) }
func (c *counts) ResizeInfeasible(detail string)   { c.add("infeasible %s", detail) }
func (c *counts) DeferredResizeAccepted(by string) { c.add("accepted by %s", by) }
func (c *counts) ResizeRequested(resource, requirement, operation string) {
	c.add("%s %s %s", operation, resource, requirement)
}

func (c *counts) DeferralEnded(resolution string, p *v1.Pod, took time.Duration) {
	name := "unknown"
	if p != nil {
		name = p.Name
	}
	c.add("%s %s after %v", name, resolution, took)
}

// observed returns a fixture that has synced, and what it counts.
func observed(t *testing.T) (fixture, *counts) {
	f, c := newFixture(t, t.TempDir()), new(counts)
	f.ObserveWith(c)
	f.synced()
	return f, c
}

// pass moves the clock by a second.
func (f fixture) pass() { f.table.parts.Clock.(*testingclock.FakeClock).Step(time.Second) }

func allAdmitted(context.Context, *v1.Pod, []*v1.Pod) *pod.Refusal { return nil }

func in(phase v1.PodPhase, p *v1.Pod) *v1.Pod {
	p.Status.Phase = phase
	return p
}

func TestAdmissionsAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		pod       *v1.Pod
		inRuntime bool
		want      counts
	}{
		"new":                 {asking("a", "1", 1), false, counts{"admitted a"}},
		"of an earlier agent": {asking("a", "1", 1), true, counts{"admitted a"}},
		"too large":           {asking("a", "3", 1), false, nil},
		"over":                {in(v1.PodFailed, asking("a", "1", 1)), true, nil},
	} {
		f, got := observed(t)
		f.Update(test.pod, test.inRuntime)
		f.Update(test.pod, test.inRuntime)
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, amount := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if amount != "" {
				l[name] = resource.MustParse(amount)
			}
		}
		return l
	}
	with := func(requests, limits v1.ResourceList) *v1.Pod {
		p := asking("a", "1", 1)
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
		return p
	}
	ofPod := asking("a", "1", 1)
	ofPod.Spec.Resources = &v1.ResourceRequirements{Requests: list("2", "")}
	init := asking("a", "1", 1)
	init.Spec.InitContainers = []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Requests: list("1", "")}}}
	grownInit := init.DeepCopy()
	grownInit.Spec.InitContainers[0].Resources.Requests = list("2", "")
	for name, test := range map[string]struct {
		before, after *v1.Pod
		want          counts
	}{
		"nothing":            {asking("a", "1", 1), asking("a", "1000m", 2), nil},
		"status":             {asking("a", "1", 1), in(v1.PodRunning, asking("a", "1", 1)), nil},
		"request":            {asking("a", "1", 1), asking("a", "2", 2), counts{"increase cpu requests"}},
		"more than there is": {asking("a", "1", 1), asking("a", "3", 2), counts{"increase cpu requests"}},
		"all": {
			with(list("1", "2Gi"), list("", "2Gi")), with(list("500m", ""), list("1", "3Gi")),
			counts{"decrease cpu requests", "add cpu limits", "remove memory requests", "increase memory limits"},
		},
		"of the pod":        {asking("a", "1", 1), ofPod, nil},
		"an init container": {init, grownInit, counts{"increase cpu requests"}},
		"a refused pod":     {asking("refused", "3", 1), asking("refused", "4", 2), nil},
	} {
		f, got := observed(t)
		f.Update(test.before, test.before.Name != "refused")
		*got = nil
		f.Update(test.after, false)
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDeferralsAreCounted: pod a, which runs beside pod b on two CPUs, waits for a second one for two seconds.
func TestDeferralsAreCounted(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	deleted := func(p *v1.Pod) *v1.Pod {
		p.DeletionTimestamp = &now
		return p
	}
	really := func(cpu string, p *v1.Pod) *v1.Pod { // with what its container has
		has := &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: has}}
		return p
	}
	for name, test := range map[string]struct {
		fits bool // what pod a requests, from now on
		end  func(f fixture)
		want counts
	}{
		"still waits":        {false, func(f fixture) { f.see(in(v1.PodRunning, asking("a", "2", 2))); f.synced() }, nil},
		"a pod is new":       {true, func(f fixture) { f.see(asking("c", "0", 1)) }, counts{"admitted c", "accepted by pods_added", "a accepted after 2s"}},
		"a pod is removed":   {false, func(f fixture) { f.forget("b") }, counts{"accepted by pods_removed", "a accepted after 2s"}},
		"a pod has ended":    {true, func(f fixture) { f.see(in(v1.PodFailed, really("1500m", asking("b", "1", 1)))) }, counts{"accepted by pod_terminated", "a accepted after 2s"}},
		"a pod is to shrink": {false, func(f fixture) { f.see(really("1500m", asking("b", "0", 2))) }, counts{"remove cpu requests"}},
		"a pod has shrunk":   {true, func(f fixture) { f.see(really("500m", asking("b", "1", 1))) }, counts{"accepted by pod_resized", "a accepted after 2s"}},
		"another status":     {true, func(f fixture) { f.see(in(v1.PodRunning, really("1500m", asking("b", "1", 1)))) }, counts{"accepted by periodic_retry", "a accepted after 2s"}},
		"periodic":           {true, func(f fixture) { f.synced() }, counts{"accepted by periodic_retry", "a accepted after 2s"}},
		"less":               {false, func(f fixture) { f.see(asking("a", "500m", 3)) }, counts{"decrease cpu requests", "accepted by pod_updated", "a accepted after 2s"}},
		"reverted":           {false, func(f fixture) { f.see(asking("a", "1", 3)) }, counts{"decrease cpu requests", "a reverted after 2s"}},
		"deleted":            {false, func(f fixture) { f.see(deleted(asking("a", "2", 2))); f.Deleted(deleted(asking("a", "2", 2))) }, counts{"a terminated after 2s"}},
		"over":               {false, func(f fixture) { f.see(in(v1.PodSucceeded, asking("a", "2", 2))) }, counts{"a terminated after 2s"}},
		"force deleted": {false, func(f fixture) {
			f.Deleted(asking("a", "2", 2))
			f.synced()
			f.forget("b")
			f.forget("a")
		}, counts{"unknown terminated after 2s"}},
		"infeasible": {false, func(f fixture) {
			f.table.checkResize = func(*v1.Pod, *v1.Pod) *pod.Refusal {
				return &pod.Refusal{Reason: v1.PodReasonInfeasible, Detail: "never"}
			}
			f.synced()
			f.see(asking("a", "1", 3))
		}, counts{"infeasible never", "decrease cpu requests"}},
	} {
		f, got := observed(t)
		f.see(asking("a", "1", 1))
		f.see(really("1500m", asking("b", "1", 1)))
		f.see(asking("a", "2", 2))
		f.pass()
		f.synced()
		f.pass()
		*got = nil
		if test.fits {
			f.table.admit = allAdmitted
		}
		test.end(f)
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDeferralOfAnEarlierAgent: a resize that an earlier agent deferred counts from the start of this agent.
func TestDeferralOfAnEarlierAgent(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		want   counts
	}{
		"deferred":   {v1.PodReasonDeferred, counts{"admitted a", "accepted by pods_added", "a accepted after 1s"}},
		"infeasible": {v1.PodReasonInfeasible, counts{"admitted a"}},
	} {
		root, got := t.TempDir(), new(counts)
		newFixture(t, root).Update(asking("a", "1", 1), false)
		f := newFixture(t, root)
		f.ObserveWith(got)
		waits := asking("a", "2", 2)
		waits.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: test.reason}}
		f.see(waits)
		f.pass()
		f.synced()
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestInfeasibleIsCountedOnce: a request that can never be done counts once, and again once it has changed.
func TestInfeasibleIsCountedOnce(t *testing.T) {
	f, got := observed(t)
	f.table.checkResize = func(p *v1.Pod, _ *v1.Pod) *pod.Refusal {
		return &pod.Refusal{Reason: v1.PodReasonInfeasible, Detail: fmt.Sprint("generation ", p.Generation)}
	}
	f.see(asking("a", "1", 1))
	f.see(asking("a", "2", 2))
	f.see(in(v1.PodRunning, asking("a", "2", 2)))
	f.synced()
	f.see(asking("a", "2", 3)) // with another image
	f.see(asking("a", "3", 4))
	want := counts{"admitted a", "increase cpu requests", "infeasible generation 2", "increase cpu requests", "infeasible generation 4"}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
