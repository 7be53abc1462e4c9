// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func testNode(name, cpu string, edit ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
	for _, f := range edit {
		f(n)
	}
	return n
}

func testPod(name, cpu string, edit ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Generation: 1},
		Spec:       v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

func onNode(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = name } }
func priority(n int32) func(*v1.Pod)   { return func(p *v1.Pod) { p.Spec.Priority = &n } }
func started(minute int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.StartTime = ptr.To(at(minute)) }
}
func at(minute int) metav1.Time { return metav1.NewTime(time.Unix(int64(60*minute), 0)) }
func app(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"app": name} }
}
func tainted(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} }
func selecting(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
}

type bench struct {
	*machine
	clock   *testingclock.FakeClock
	budgets []*policyv1.PodDisruptionBudget
}

func newBench(nodes ...*v1.Node) *bench {
	b := &bench{clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
	b.machine = newMachine(b.clock, func() []*policyv1.PodDisruptionBudget { return b.budgets })
	for _, n := range nodes {
		b.setNode(n)
	}
	return b
}

func (b *bench) set(pods ...*v1.Pod) *bench {
	for _, p := range pods {
		b.setPod(model.NewPod(p))
	}
	return b
}

// decide runs the machine until it has no decision left, and returns the decisions as text.
func (b *bench) decide() []string {
	var all []string
	for d, found := b.next(); found; d, found = b.next() {
		if d.group != nil {
			all = append(all, d.group.String())
		} else if d.node != "" {
			all = append(all, d.pod.Name+" -> "+d.node)
		} else {
			all = append(all, fmt.Sprintf("%s: %s: %s", d.pod.Name, d.reason, d.message))
		}
	}
	return all
}

func (b *bench) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.decide()); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

func TestMessages(t *testing.T) {
	gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }
	never := func(p *v1.Pod) { p.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever) }
	pinned := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}},
			}}}
		}
	}
	three := []*v1.Node{testNode("a", "1"), testNode("b", "1", tainted), testNode("c", "1", tainted)}
	for _, tt := range []struct {
		name  string
		nodes []*v1.Node
		pods  []*v1.Pod
		want  []string
	}{
		{"no nodes", nil, []*v1.Pod{testPod("p", "1")},
			[]string{"p: Unschedulable: no nodes available to schedule pods"}},
		{"reasons are counted and sorted", three, []*v1.Pod{testPod("p", "2")},
			[]string{"p: Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."}},
		{"no pod to preempt", three, []*v1.Pod{testPod("x", "1", onNode("a")), testPod("p", "1")},
			[]string{"p: Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."}},
		{"may not preempt", three[:1], []*v1.Pod{testPod("x", "1", onNode("a")), testPod("p", "1", priority(1), never)},
			[]string{"p: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."}},
		{"preempts", three[:1], []*v1.Pod{testPod("x", "1", onNode("a")), testPod("p", "1", priority(1))},
			[]string{"p: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 1 victims"}},
		{"pinned", three, []*v1.Pod{testPod("p", "2", pinned("a"))},
			[]string{"p: Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."}},
		{"pinned and fits", three, []*v1.Pod{testPod("p", "1", pinned("a"))}, []string{"p -> a"}},
		{"gated", three, []*v1.Pod{testPod("p", "1", gated)}, nil},
		{"another scheduler's pod", three, []*v1.Pod{testPod("p", "1", func(p *v1.Pod) { p.Spec.SchedulerName = "other" })}, nil},
		{"created with a node", three, []*v1.Pod{testPod("p", "1", onNode("nowhere"))}, nil},
		{"being deleted", three, []*v1.Pod{testPod("p", "1", func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(at(1)) })}, nil},
		{"ended", three, []*v1.Pod{testPod("x", "1", onNode("a"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), testPod("p", "1")}, []string{"p -> a"}},
	} {
		t.Run(tt.name, func(t *testing.T) { newBench(tt.nodes...).set(tt.pods...).want(t, tt.want...) })
	}
}

func TestMostUrgentFirst(t *testing.T) {
	b := newBench(testNode("a", "2")).set(testPod("low", "1"), testPod("high", "1", priority(10)), testPod("low2", "1", priority(-1)))
	got := b.decide()
	if len(got) != 3 || got[0] != "high -> a" || got[1] != "low -> a" || !strings.HasPrefix(got[2], "low2: Unschedulable: 0/1") {
		t.Errorf("decisions: %q", got)
	}
}

func TestReplicasSpread(t *testing.T) {
	b := newBench()
	for i := range 20 {
		b.setNode(testNode(fmt.Sprint("n", i), "64"))
	}
	owned := func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "rs", Controller: ptr.To(true)}} }
	for i := range 300 {
		b.set(testPod(fmt.Sprint("p", i), "", owned))
	}
	b.decide()
	for _, n := range b.cluster.Nodes() {
		if got := len(n.Pods); got < 14 || got > 16 {
			t.Errorf("node %s has %d of 300 pods, want about 15", n.Name, got)
		}
	}
}

// TestLateUpdateOfABoundPod: a late event has a bound pod without its node. The pod must not be
// scheduled a second time.
func TestLateUpdateOfABoundPod(t *testing.T) {
	b := newBench(testNode("a", "4")).set(testPod("p", "1"))
	b.want(t, "p -> a")
	b.set(testPod("p", "1", app("late")))
	b.want(t)
	b.set(testPod("p", "1", onNode("a")))
	b.want(t)
	if n := b.cluster.Node("a"); len(n.Pods) != 1 || n.Requested.MilliCPU != 1000 {
		t.Errorf("node has %d pods, %d milli-CPUs taken", len(n.Pods), n.Requested.MilliCPU)
	}
	if len(b.binding) != 0 {
		t.Error("the pod still counts as being bound")
	}
}

func TestBindingFails(t *testing.T) {
	b := newBench(testNode("a", "1")).set(testPod("p", "1"), testPod("waits", "1"))
	b.decide()
	b.notBound("p", errors.New("no"))
	// The other pod gets its room, and the pod waits for its backoff.
	b.want(t, "p: SchedulerError: no", "waits -> a")
	b.removePod("waits")
	b.want(t)
	b.clock.Step(time.Second)
	b.want(t, "p -> a")

	// An error of a binding is ignored if the watch has already shown the pod on its node.
	b.set(testPod("p", "1", onNode("a")))
	b.notBound("p", errors.New("timeout"))
	b.want(t)
	if b.cluster.Pod("p") == nil {
		t.Error("the pod was removed from its node")
	}
}

func TestDeletedWhileBinding(t *testing.T) {
	b := newBench(testNode("a", "1")).set(testPod("p", "1"), testPod("waits", "1"))
	b.decide()
	b.removePod("p")
	b.notBound("p", errors.New("not found"))
	b.want(t, "waits -> a")
}

func TestPreemption(t *testing.T) {
	guard := func(allowed int32) []*policyv1.PodDisruptionBudget {
		return []*policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}}
	}
	apart := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
		}}}
	}
	two := []*v1.Node{testNode("a", "2"), testNode("b", "2")}
	for _, tt := range []struct {
		name    string
		nodes   []*v1.Node
		budgets []*policyv1.PodDisruptionBudget
		pods    []*v1.Pod
		pod     *v1.Pod
		want    string
	}{
		{"preempts no more pods than needed", two[:1], nil,
			[]*v1.Pod{testPod("x", "1", onNode("a"), started(1)), testPod("y", "1", onNode("a"), started(2))}, testPod("p", "1", priority(5)), "a: [y]"},
		{"prefers the least important victim", two[:1], nil,
			[]*v1.Pod{testPod("x", "1", onNode("a"), priority(2)), testPod("y", "1", onNode("a"), priority(1))}, testPod("p", "1", priority(5)), "a: [y]"},
		{"prefers the youngest victim", two[:1], nil,
			[]*v1.Pod{testPod("x", "1", onNode("a"), started(2)), testPod("y", "1", onNode("a"), started(1))}, testPod("p", "1", priority(5)), "a: [x]"},
		{"never preempts a pod of equal priority", two[:1], nil,
			[]*v1.Pod{testPod("x", "2", onNode("a"), priority(5))}, testPod("p", "1", priority(5)), ""},
		{"prefers the node with the less important victim", two, nil,
			[]*v1.Pod{testPod("x", "2", onNode("a"), priority(2)), testPod("y", "2", onNode("b"), priority(1))}, testPod("p", "1", priority(5)), "b: [y]"},
		{"prefers the node with fewer victims", two, nil,
			[]*v1.Pod{testPod("x", "1", onNode("a")), testPod("y", "1", onNode("a")), testPod("z", "2", onNode("b"))}, testPod("p", "2", priority(5)), "b: [z]"},
		{"prefers the node with the younger victim", two, nil,
			[]*v1.Pod{testPod("x", "2", onNode("a"), started(1)), testPod("y", "2", onNode("b"), started(2))}, testPod("p", "2", priority(5)), "b: [y]"},
		{"a disruption budget protects a pod", two[:1], guard(0),
			[]*v1.Pod{testPod("x", "1", onNode("a"), app("guarded")), testPod("y", "1", onNode("a"), priority(1))}, testPod("p", "1", priority(5)), "a: [y]"},
		{"a disruption budget decides between nodes", two, guard(0),
			[]*v1.Pod{testPod("x", "2", onNode("a"), app("guarded")), testPod("y", "2", onNode("b"), priority(4))}, testPod("p", "1", priority(5)), "b: [y]"},
		{"a disruption budget allows the victim", two, guard(1),
			[]*v1.Pod{testPod("x", "2", onNode("a"), app("guarded")), testPod("y", "2", onNode("b"), priority(4))}, testPod("p", "1", priority(5)), "a: [x]"},
		{"a disruption budget is violated if nothing else helps", two[:1], guard(0),
			[]*v1.Pod{testPod("x", "2", onNode("a"), app("guarded"))}, testPod("p", "1", priority(5)), "a: [x]"},
		{"preempts for a rule other than resources", two[:1], nil,
			[]*v1.Pod{testPod("x", "", onNode("a"), app("guarded")), testPod("y", "", onNode("a"))}, testPod("p", "", priority(5), apart), "a: [x]"},
		{"ignores nodes on which preemption does not help", two, nil,
			[]*v1.Pod{testPod("x", "2", onNode("a")), testPod("y", "2", onNode("b"))}, testPod("p", "2", priority(5), selecting("b")), "b: [y]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(tt.nodes...)
			b.budgets = tt.budgets
			b.set(tt.pods...).set(tt.pod)
			d, _ := b.next()
			got := ""
			if d.preempt != nil {
				var names []string
				for _, victim := range d.preempt.victims {
					names = append(names, victim.Name)
				}
				got = fmt.Sprintf("%s: %v", d.preempt.node, names)
			}
			if got != tt.want {
				t.Errorf("preemption %q, want %q (%s)", got, tt.want, d.message)
			}
			if tt.want != "" && (d.nominate == nil || *d.nominate != d.preempt.node) {
				t.Errorf("nominated %v, want %s", d.nominate, d.preempt.node)
			}
		})
	}
}

func TestNominatedRoomIsKeptAndUsed(t *testing.T) {
	b := newBench(testNode("a", "1")).set(testPod("victim", "1", onNode("a")), testPod("vip", "1", priority(5)))
	b.decide()
	// While the victim terminates, no other pod is preempted for this pod.
	b.set(testPod("vip", "1", priority(5), app("changed")))
	got := b.decide()
	if len(got) != 1 || !strings.HasSuffix(got[0], "preemption: not eligible due to a terminating pod on the nominated node.") {
		t.Errorf("while the victim terminates: %q", got)
	}
	// When the victim is removed, the preemptor gets the room, and not a less important pod.
	b.set(testPod("thief", "1", priority(1)))
	b.removePod("victim")
	got = b.decide()
	if len(got) < 2 || got[len(got)-1] != "vip -> a" || !strings.HasPrefix(got[0], "thief: Unschedulable") {
		t.Errorf("after the victim was removed: %q", got)
	}
}

func TestPreemptionFails(t *testing.T) {
	b := newBench(testNode("a", "1")).set(testPod("victim", "1", onNode("a")), testPod("vip", "1", priority(5)))
	d, _ := b.next()
	b.notPreempted("vip", d.preempt)
	again, found := b.next()
	if !found || again.preempt == nil {
		t.Errorf("not retried: %+v", again)
	}
}

func TestMoreImportantPreemptorTakesOver(t *testing.T) {
	b := newBench(testNode("a", "1")).set(testPod("victim", "1", onNode("a")), testPod("vip", "1", priority(5)))
	b.decide()
	b.set(testPod("king", "1", priority(9)))
	d, _ := b.next()
	if d.pod.Name != "king" || d.preempt == nil || len(d.preempt.demoted) != 1 || d.preempt.demoted[0].Name != "vip" {
		t.Fatalf("decision %+v", d)
	}
	if b.cluster.Nomination("vip") != "" || b.cluster.Nomination("king") != "a" {
		t.Error("the nomination was not given to the more important pod")
	}
}

func TestWakes(t *testing.T) {
	full := testPod("x", "1", onNode("a"), app("x"))
	for _, tt := range []struct {
		name   string
		nodes  []*v1.Node
		change func(*bench)
		wakes  bool
	}{
		{"a pod is removed", nil, func(b *bench) { b.removePod("x") }, true},
		{"a pod ends", nil, func(b *bench) {
			b.set(testPod("x", "1", onNode("a"), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }))
		}, true},
		{"a pod shrinks", nil, func(b *bench) { b.set(testPod("x", "", onNode("a"), app("x"))) }, true},
		{"a pod shrinks too little", nil, func(b *bench) { b.set(testPod("x", "500m", onNode("a"), app("x"))) }, false},
		{"a pod is removed from a node that is too small", []*v1.Node{testNode("b", "500m")}, func(b *bench) {
			b.set(testPod("y", "", onNode("b")))
			b.removePod("y")
		}, false},
		{"a pod is relabelled", nil, func(b *bench) { b.set(testPod("x", "1", onNode("a"), app("y"))) }, false},
		{"a node that fits is added", nil, func(b *bench) { b.setNode(testNode("b", "1")) }, true},
		{"a node that is too small is added", nil, func(b *bench) { b.setNode(testNode("b", "500m")) }, false},
		{"a node grows", nil, func(b *bench) { b.setNode(testNode("a", "2")) }, true},
		{"a node's heartbeat", nil, func(b *bench) {
			b.setNode(testNode("a", "1", func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}} }))
		}, false},
		{"the scheduler's own status update", nil, func(b *bench) {
			b.set(testPod("p", "1", func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}} }))
		}, false},
		{"a taint is removed", []*v1.Node{testNode("b", "1", tainted)}, func(b *bench) { b.setNode(testNode("b", "1")) }, true},
		{"a node is uncordoned", []*v1.Node{testNode("b", "1", func(n *v1.Node) { n.Spec.Unschedulable = true })},
			func(b *bench) { b.setNode(testNode("b", "1")) }, true},
		{"a toleration is added", []*v1.Node{testNode("b", "1", tainted)}, func(b *bench) {
			b.set(testPod("p", "1", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} }))
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(append(tt.nodes, testNode("a", "1"))...).set(full, testPod("p", "1"))
			if got := b.decide(); len(got) != 1 {
				t.Fatalf("at first: %q", got)
			}
			tt.change(b)
			if got := b.decide(); (len(got) > 0) != tt.wakes {
				t.Errorf("after the event: %q, want woken %v", got, tt.wakes)
			}
		})
	}
}
