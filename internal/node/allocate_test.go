// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// allotment is a node with two CPUs, whose pods have workers that do not run.
type allotment struct {
	*pods
	events *record.FakeRecorder
}

func newAllotment(t *testing.T, root string) allotment {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10"),
	}}}
	events := record.NewFakeRecorder(100)
	a := allotment{events: events, pods: newPods(func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
		return admission.Check(klog.FromContext(ctx), node, p, admission.LoadOf(others))
	})}
	a.start(t.Context(), &pod.Parts{Host: pod.Host{Layout: pod.Layout{Root: root}}, Recorder: events})
	return a
}

func asking(name, cpu string, generation int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: generation},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

// see shows the node a pod. Its worker is made by hand, so that nothing runs it.
func (a allotment) see(p *v1.Pod) {
	a.mu.Lock()
	if a.workers[p.UID] == nil {
		g, _ := newGrant(a.parts.Host.Layout, p)
		g.want(p)
		a.keep(a.ctx, g)
		a.grants[p.UID] = g
		a.workers[p.UID] = pod.NewWorker(a.parts, g.admitted(), nil, false)
	}
	a.mu.Unlock()
	a.set(p, true)
}

func (a allotment) has(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, p := range a.all() {
		got[p.Name] = p.Spec.Containers[0].Resources.Requests.Cpu().String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
}

func (a allotment) reasons() []string {
	var reasons []string
	for len(a.events.Events) > 0 {
		reasons = append(reasons, strings.Join(strings.Fields(<-a.events.Events)[:5], " "))
	}
	return reasons
}

func TestResizesAreAllocated(t *testing.T) {
	root := t.TempDir()
	a := newAllotment(t, root)
	a.see(asking("a", "1", 1))
	a.see(asking("b", "500m", 1))
	a.see(asking("a", "1500m", 2)) // fits, but who knows what else there is
	a.has(t, map[string]string{"a": "1", "b": "500m"})
	a.known()
	a.has(t, map[string]string{"a": "1500m", "b": "500m"})

	a.see(asking("b", "1", 2))
	a.see(asking("b", "1", 2))
	a.has(t, map[string]string{"a": "1500m", "b": "500m"})
	pending := a.grants["b"].resize.Pending
	want := &pod.Refusal{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"}
	if diff := cmp.Diff(want, pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal ResizeStarted Pod resize started:", "Warning ResizeDeferred Pod resize OutOfcpu:"}, a.reasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// The next agent finds what was allocated, whatever the specs say, and is not told again.
	waiting := asking("b", "1", 2)
	waiting.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, ObservedGeneration: 2}}
	next := newAllotment(t, root)
	next.see(waiting)
	next.see(asking("a", "1500m", 2))
	next.known()
	next.has(t, map[string]string{"a": "1500m", "b": "500m"})
	if reasons := next.reasons(); len(reasons) > 0 {
		t.Errorf("events %v", reasons)
	}

	// What another gives back is taken at once.
	next.see(asking("a", "1", 3))
	next.has(t, map[string]string{"a": "1", "b": "1"})
	if g := next.grants["b"]; g.resize.Pending != nil || g.resize.Allocated != 2 {
		t.Errorf("resize %+v", g.resize)
	}
	// So is what a pod leaves, and one who wants no more stops waiting.
	next.see(asking("b", "2", 3))
	next.forget("a")
	next.has(t, map[string]string{"b": "2"})
	next.see(asking("b", "3", 4))
	next.see(asking("b", "2", 5))
	if pending := next.grants["b"].resize.Pending; pending != nil {
		t.Errorf("still pending: %+v", pending)
	}
}

// TestAResizeIsSeenWithItsAnswer: while the node decides, the worker has the generation before,
// so that no status says of the new one that nothing is under way.
func TestAResizeIsSeenWithItsAnswer(t *testing.T) {
	a := newAllotment(t, t.TempDir())
	a.see(asking("a", "1", 1))
	a.known()
	decide, decided := a.admit, 0
	a.admit = func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
		decided++
		if had := a.workers["a"].Pod().Generation; had != p.Generation-1 {
			t.Errorf("deciding on generation %d, the worker has %d", p.Generation, had)
		}
		return decide(ctx, p, others)
	}
	a.see(asking("a", "2", 2)) // granted
	a.see(asking("a", "3", 3)) // deferred
	if had := a.workers["a"].Pod().Generation; had != 3 || decided != 2 {
		t.Errorf("decided %d times, the worker has generation %d", decided, had)
	}
}

// TestResizeOrder: who gives back, then priority, then quality of service.
func TestResizeOrder(t *testing.T) {
	grantOf := func(name, have, want string, change func(*v1.Pod)) *grant {
		p := asking(name, want, 1)
		change(p)
		g := &grant{allocated: pod.AllocationOf(asking(name, have, 1))}
		g.want(p)
		return g
	}
	none := func(*v1.Pod) {}
	list := []*grant{
		grantOf("plain", "1", "2", none),
		grantOf("guaranteed", "1", "2", func(p *v1.Pod) {
			both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: both, Limits: both}
		}),
		grantOf("important", "1", "2", func(p *v1.Pod) { p.Spec.Priority = new(int32(7)) }),
		grantOf("shrinks", "2", "1", none),
	}
	slices.SortFunc(list, order)
	var names []string
	for _, g := range list {
		names = append(names, g.wanted.Name)
	}
	if diff := cmp.Diff([]string{"shrinks", "important", "guaranteed", "plain"}, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
