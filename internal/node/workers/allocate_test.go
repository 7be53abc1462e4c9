// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// fixture is the Set of a node with two CPUs. Its workers do not run.
type fixture struct {
	*Set
	events    *record.FakeRecorder
	resources *fakeResources
}

// fakeResources refuses what it is told to.
type fakeResources struct {
	assign   *pod.Refusal
	assigned map[types.UID]bool
}

func (r *fakeResources) Assign(_ context.Context, p *v1.Pod) *pod.Refusal {
	if r.assign == nil {
		r.assigned[p.UID] = true
	}
	return r.assign
}

func (r *fakeResources) Release(uid types.UID) error {
	delete(r.assigned, uid)
	return nil
}

func newFixture(t *testing.T, root string) fixture {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10"),
	}}}
	events := record.NewFakeRecorder(100)
	resources := &fakeResources{assigned: map[types.UID]bool{}}
	f := fixture{events: events, resources: resources, Set: New(func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
		return admission.Check(klog.FromContext(ctx), node, p, admission.LoadOf(others))
	}, resources, func(*v1.Pod, *v1.Pod) *pod.Refusal { return nil })}
	f.Start(t.Context(), &pod.Parts{Clock: testingclock.NewFakeClock(time.Unix(1000, 0)), Host: criconfig.Host{Layout: rootdir.Layout{Root: root}}, Recorder: events})
	f.table.spawn = func(*pod.Worker, types.UID) {}
	return f
}

// see updates the Set with a pod that the runtime already has, so that it is not refused.
func (f fixture) see(p *v1.Pod) { f.Update(p, true) }

func asking(name, cpu string, generation int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: generation},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func (f fixture) has(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, p := range f.Pods() {
		got[p.Name] = p.Spec.Containers[0].Resources.Requests.Cpu().String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
}

func (f fixture) reasons() []string {
	var reasons []string
	for len(f.events.Events) > 0 {
		reasons = append(reasons, strings.Join(strings.Fields(<-f.events.Events)[:5], " "))
	}
	return reasons
}

func TestResizesAreAllocated(t *testing.T) {
	root := t.TempDir()
	f := newFixture(t, root)
	f.see(asking("a", "1", 1))
	f.see(asking("b", "500m", 1))
	f.see(asking("a", "1500m", 2)) // fits, but the node may have pods that it has not seen yet
	f.has(t, map[string]string{"a": "1", "b": "500m"})
	f.synced()
	f.has(t, map[string]string{"a": "1500m", "b": "500m"})

	f.see(asking("b", "1", 2))
	f.see(asking("b", "1", 2))
	f.has(t, map[string]string{"a": "1500m", "b": "500m"})
	pending := f.table.allocations["b"].resize.Pending
	want := &pod.Refusal{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"}
	if diff := cmp.Diff(want, pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal ResizeStarted Pod resize started:", "Warning ResizeDeferred Pod resize OutOfcpu:"}, f.reasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// The next agent loads the stored allocations, not the requests in the specs, and repeats no event.
	waiting := asking("b", "1", 2)
	waiting.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, ObservedGeneration: 2}}
	next := newFixture(t, root)
	next.see(waiting)
	next.see(asking("a", "1500m", 2))
	next.synced()
	next.has(t, map[string]string{"a": "1500m", "b": "500m"})
	if reasons := next.reasons(); len(reasons) > 0 {
		t.Errorf("events %v", reasons)
	}

	// Resources that another pod releases are allocated immediately.
	next.see(asking("a", "1", 3))
	next.has(t, map[string]string{"a": "1", "b": "1"})
	if a := next.table.allocations["b"]; a.resize.Pending != nil || a.resize.Allocated != 2 {
		t.Errorf("resize %+v", a.resize)
	}
	// The same applies to the resources of a removed pod. A pod that withdraws its request is no longer
	// pending.
	next.see(asking("b", "2", 3))
	next.forget("a")
	next.has(t, map[string]string{"b": "2"})
	next.see(asking("b", "3", 4))
	next.see(asking("b", "2", 5))
	if pending := next.table.allocations["b"].resize.Pending; pending != nil {
		t.Errorf("still pending: %+v", pending)
	}
}

// TestResizeReachesWorkerWithAnswer: until the node has decided, the worker has the previous generation,
// so that no status of the new generation lacks the condition of the resize.
func TestResizeReachesWorkerWithAnswer(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.see(asking("a", "1", 1))
	f.synced()
	decide, decided := f.table.admit, 0
	f.table.admit = func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
		decided++
		if had := f.table.workers["a"].Pod().Generation; had != p.Generation-1 {
			t.Errorf("deciding on generation %d, the worker has %d", p.Generation, had)
		}
		return decide(ctx, p, others)
	}
	f.see(asking("a", "2", 2)) // allocated
	f.see(asking("a", "3", 3)) // deferred
	if had := f.table.workers["a"].Pod().Generation; had != 3 || decided != 2 {
		t.Errorf("decided %d times, the worker has generation %d", decided, had)
	}
}

// A resize that can never be done is refused, once for each generation of the pod, and the pod keeps what it has.
func TestInfeasibleResize(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.synced()
	f.see(asking("a", "1", 1))
	f.table.checkResize = func(desired, allocated *v1.Pod) *pod.Refusal {
		if desired.Spec.Containers[0].Resources.Requests.Cpu().Cmp(*allocated.Spec.Containers[0].Resources.Requests.Cpu()) > 0 {
			return &pod.Refusal{Reason: v1.PodReasonInfeasible, Message: "never"}
		}
		return nil
	}
	f.see(asking("a", "2", 2))
	f.see(asking("a", "2", 2))
	if diff := cmp.Diff([]string{"Warning ResizeInfeasible Pod resize Infeasible:"}, f.reasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.has(t, map[string]string{"a": "1"})
	if got := f.table.allocations["a"].resize.Pending; got == nil || got.Reason != v1.PodReasonInfeasible {
		t.Errorf("pending %+v", got)
	}
}

// TestResizeOrder: pods that release resources come first, then the order is by priority and QoS class.
func TestResizeOrder(t *testing.T) {
	grantOf := func(name, have, want string, change func(*v1.Pod)) *podAllocation {
		p := asking(name, want, 1)
		change(p)
		a := &podAllocation{allocated: pod.AllocationOf(asking(name, have, 1))}
		a.setDesired(p)
		return a
	}
	none := func(*v1.Pod) {}
	list := []*podAllocation{
		grantOf("plain", "1", "2", none),
		grantOf("guaranteed", "1", "2", func(p *v1.Pod) {
			both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: both, Limits: both}
		}),
		grantOf("important", "1", "2", func(p *v1.Pod) { p.Spec.Priority = new(int32(7)) }),
		grantOf("shrinks", "2", "1", none),
	}
	slices.SortFunc(list, compareResizes)
	var names []string
	for _, a := range list {
		names = append(names, a.desired.Name)
	}
	if diff := cmp.Diff([]string{"shrinks", "important", "guaranteed", "plain"}, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestResources: a new pod is assigned what it requests unless the node refuses it, and a running pod is not assigned
// anything again.
func TestResources(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.resources.assign = &pod.Refusal{Reason: "UnexpectedAdmissionError"}
	f.Update(asking("none left", "1", 1), false)
	f.resources.assign = nil
	f.Update(asking("too large", "3", 1), false)
	if got := len(f.events.Events); got != 2 {
		t.Errorf("%d pods were refused, want 2", got)
	}
	for len(f.events.Events) > 0 {
		<-f.events.Events
	}
	f.Update(asking("fits", "1", 1), false)
	f.see(asking("runs", "1", 1))
	if diff := cmp.Diff(map[types.UID]bool{"fits": true}, f.resources.assigned); diff != "" {
		t.Errorf("assigned (-want +got):\n%s", diff)
	}
}
