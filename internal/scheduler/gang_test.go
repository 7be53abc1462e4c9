// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// gang returns a PodGroup; with a count of 0, one of policy basic.
func gang(name string, count int32, edit ...func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	if count > 0 {
		g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: count}
	} else {
		g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	}
	for _, f := range edit {
		f(g)
	}
	return g
}

func urgent(priority int32) func(*schedulingv1beta1.PodGroup) {
	return func(g *schedulingv1beta1.PodGroup) { g.Spec.Priority = &priority }
}

func asOne(g *schedulingv1beta1.PodGroup) {
	g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
}

func inGroup(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

// members returns pods of a group, named after it.
func members(group string, count int, cpu string, edit ...func(*v1.Pod)) []*v1.Pod {
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, testPod(fmt.Sprint(group, i), cpu, append(edit, inGroup(group))...))
	}
	return pods
}

func (b *bench) groups(groups ...*schedulingv1beta1.PodGroup) *bench {
	for _, g := range groups {
		b.setGroup(g)
	}
	return b
}

func (r *groupReport) String() string {
	text := fmt.Sprintf("group %s", r.object.Name)
	if r.condition.Type != "" {
		text += fmt.Sprintf(": %s %s %s", r.condition.Status, r.condition.Reason, r.condition.Message)
	}
	if r.preempt != nil {
		text += "; preempts"
		for _, victim := range r.preempt.victims {
			text += " " + victim.Name
		}
	}
	return text
}

func TestQuorum(t *testing.T) {
	for _, test := range []struct {
		quorum
		want   outcome
		reason string
	}{
		{quorum{3, 0, 3}, undecided, "minCount (3) is not yet satisfied: 0 scheduled, 3 remaining"},
		{quorum{3, 1, 1}, rejected, "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"},
		{quorum{3, 3, 0}, scheduled, ""},
		{quorum{1, 5, 2}, scheduled, ""},
	} {
		if got, reason := test.outcome(); got != test.want || reason != test.reason {
			t.Errorf("%+v: %v %s", test.quorum, got, reason)
		}
	}
}

func TestValidateGroup(t *testing.T) {
	never := func(p *v1.Pod) { p.Spec.PreemptionPolicy = new(v1.PreemptNever) }
	other := func(p *v1.Pod) { p.Spec.SchedulerName = "other" }
	pods := func(pods ...*v1.Pod) []*model.Pod {
		var out []*model.Pod
		for _, p := range pods {
			out = append(out, model.NewPod(p))
		}
		return out
	}
	for name, test := range map[string]struct {
		pending, placed []*model.Pod
		want            string
	}{
		"same":       {pods(testPod("a", "", priority(2)), testPod("b", "", priority(2))), pods(testPod("c", "", priority(2))), ""},
		"priority":   {pods(testPod("a", "", priority(2)), testPod("b", "", priority(1))), nil, "all pods in a single pod group should have the same priority as the pod group's priority, got 1 and 2"},
		"scheduler":  {pods(testPod("a", "", priority(2))), pods(testPod("c", "", priority(2), other)), `all pods in a single pod group should have the same .spec.schedulerName set, got: "other" and "default-scheduler"`},
		"preemption": {pods(testPod("a", "", priority(2)), testPod("b", "", priority(2), never)), nil, "all pods in a single pod group should have the same preemption policy, got Never and PreemptLowerPriority"},
	} {
		got := ""
		if err := validateGroup(2, test.pending, test.placed); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

const (
	insufficient = "0/1 nodes are available: 1 Insufficient cpu."
	noVictims    = "pod group preemption: No preemption victims found for incoming preemptor"
)

func TestGangs(t *testing.T) {
	gate := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }
	four := testNode("a", "4")
	for name, test := range map[string]struct {
		groups []*schedulingv1beta1.PodGroup
		pods   []*v1.Pod
		want   []string
	}{
		"no PodGroup":        {nil, members("g", 2, "1"), nil},
		"too few pods":       {[]*schedulingv1beta1.PodGroup{gang("g", 3)}, members("g", 2, "1"), nil},
		"fits":               {[]*schedulingv1beta1.PodGroup{gang("g", 2)}, members("g", 3, "1"), []string{"g0 -> a", "g1 -> a", "g2 -> a", "group g: True Scheduled "}},
		"a member is gated":  {[]*schedulingv1beta1.PodGroup{gang("g", 2)}, append(members("g", 2, "1"), testPod("gated", "1", inGroup("g"), gate)), nil},
		"pods without group": {[]*schedulingv1beta1.PodGroup{gang("g", 2)}, append(members("g", 1, "1"), testPod("p", "1")), []string{"p -> a"}},
		"does not fit": {[]*schedulingv1beta1.PodGroup{gang("g", 3)}, members("g", 4, "2"), []string{
			"g0: Unschedulable: pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, " + noVictims,
			"g1: Unschedulable: pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, " + noVictims,
			"g2: Unschedulable: " + insufficient, "g3: Unschedulable: " + insufficient,
			"group g: False Unschedulable minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, " + noVictims,
		}},
		"the first does not fit": {[]*schedulingv1beta1.PodGroup{gang("g", 2)}, members("g", 2, "5"), []string{
			"g0: Unschedulable: " + insufficient,
			"g1: Unschedulable: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining",
			"group g: False Unschedulable minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, " + noVictims,
		}},
		// The pods that are left are tried once more at once, and then preempt.
		"enough fit": {[]*schedulingv1beta1.PodGroup{gang("g", 2)}, members("g", 3, "2"), []string{
			"g2: Unschedulable: " + insufficient, "g0 -> a", "g1 -> a", "group g: True Scheduled ",
			"g2: Unschedulable: " + insufficient, "group g",
		}},
		"basic": {[]*schedulingv1beta1.PodGroup{gang("g", 0)}, members("g", 2, "3"), []string{
			"g1: Unschedulable: " + insufficient, "g0 -> a", "group g: True Scheduled ",
			"g1: Unschedulable: " + insufficient, "group g",
		}},
		"other priorities": {[]*schedulingv1beta1.PodGroup{gang("g", 1)}, members("g", 1, "1", priority(3)), []string{
			"g0: SchedulerError: all pods in a single pod group should have the same priority as the pod group's priority, got 3 and 0",
			"group g: False SchedulerError all pods in a single pod group should have the same priority as the pod group's priority, got 3 and 0",
		}},
		"two gangs that do not fit both": {[]*schedulingv1beta1.PodGroup{gang("g", 3), gang("h", 3)}, append(members("g", 3, "1"), members("h", 3, "1")...), []string{
			"g0 -> a", "g1 -> a", "g2 -> a", "group g: True Scheduled ",
			"h0: Unschedulable: pod group is unschedulable, minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, " + noVictims,
			"h1: Unschedulable: " + insufficient,
			"h2: Unschedulable: minCount (3) cannot be satisfied: 1 scheduled, 1 remaining",
			"group h: False Unschedulable minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, " + noVictims,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// The order of events must not matter.
			newBench(four).groups(test.groups...).set(test.pods...).want(t, test.want...)
			newBench(four).set(test.pods...).groups(test.groups...).want(t, test.want...)
		})
	}
}

func TestNoNodesForAGang(t *testing.T) {
	newBench().groups(gang("g", 1)).set(members("g", 1, "1")...).want(t,
		"g0: Unschedulable: no nodes available to schedule pods",
		"group g: False Unschedulable minCount (1) cannot be satisfied: 0 scheduled, 0 remaining, "+noVictims)
}

// TestGangsWake: what changes may let a pending gang be scheduled.
func TestGangsWake(t *testing.T) {
	placed := []string{"g0 -> a", "g1 -> a", "group g: True Scheduled "}
	for name, test := range map[string]struct {
		before func(*bench)
		change func(*bench)
		want   []string
	}{
		"node added": {func(b *bench) {}, func(b *bench) { b.setNode(testNode("a", "4")) }, placed},
		"room": {func(b *bench) { b.setNode(testNode("a", "4")); b.set(testPod("x", "3", onNode("a"))) },
			func(b *bench) { b.removePod("x") }, placed},
		"lower count": {func(b *bench) { b.setNode(testNode("a", "3")) }, func(b *bench) { b.groups(gang("g", 1)) },
			[]string{"g1: Unschedulable: " + insufficient, "g0 -> a", "group g: True Scheduled ", "g1: Unschedulable: " + insufficient, "group g"}},
		"the status of the group": {func(b *bench) { b.setNode(testNode("a", "3")) },
			func(b *bench) {
				b.groups(gang("g", 2, func(g *schedulingv1beta1.PodGroup) { g.Status.Conditions = []metav1.Condition{{Type: "T"}} }))
			}, nil},
		"a smaller pod": {func(b *bench) { b.setNode(testNode("a", "3")) }, func(b *bench) { b.set(testPod("g2", "1", inGroup("g"))) },
			[]string{"g1: Unschedulable: " + insufficient, "g0 -> a", "g2 -> a", "group g: True Scheduled ", "g1: Unschedulable: " + insufficient, "group g"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench().groups(gang("g", 2)).set(members("g", 2, "2")...)
			test.before(b)
			b.decide()
			test.change(b)
			b.clock.Step(20 * time.Second)
			b.want(t, test.want...)
		})
	}
}

// TestDeletedPodGroup: its pods wait until there is one again.
func TestDeletedPodGroup(t *testing.T) {
	b := newBench(testNode("a", "1")).groups(gang("g", 2)).set(members("g", 2, "1")...)
	b.decide()
	b.removeGroup(gang("g", 2))
	b.setNode(testNode("b", "1"))
	b.clock.Step(20 * time.Second)
	b.want(t)
	if got := b.groups(gang("g", 2)).decide(); len(got) != 3 || got[2] != "group g: True Scheduled " {
		t.Errorf("%q", got)
	}
}

func TestGangPreempts(t *testing.T) {
	b := newBench(testNode("a", "2"), testNode("b", "2")).groups(gang("g", 2, urgent(5))).
		set(testPod("x", "2", onNode("a")), testPod("small", "100m", onNode("b")), testPod("y", "1900m", onNode("b"), priority(1)), testPod("high", "100m", onNode("b"), priority(9))).
		set(members("g", 2, "1800m", priority(5))...)
	const victims = "pod group preemption: found a placement for podgroup, preempting 2 victims"
	full := "0/2 nodes are available: 2 Insufficient cpu."
	b.want(t, "g0: Unschedulable: "+full, "g1: Unschedulable: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining",
		"group g: False Unschedulable minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, "+victims+"; preempts y x")
	if b.cluster.Nomination("g0") == "" || b.cluster.Nomination("g1") == "" || b.cluster.NodeOf("x") != "a" {
		t.Error("the pods are not nominated, or the victims removed")
	}
	// While a victim terminates, no other pod is preempted.
	b.removePod("x")
	b.clock.Step(20 * time.Second)
	const ongoing = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, pod group preemption: ongoing preemption on nominated nodes"
	got := b.decide()
	if len(got) != 3 || got[2] != "group g: False Unschedulable "+ongoing {
		t.Errorf("%q", got)
	}
	b.removePod("y")
	b.clock.Step(20 * time.Second)
	got = b.decide()
	if len(got) != 3 || got[2] != "group g: True Scheduled " {
		t.Errorf("%q", got)
	}
}

func TestGangThatMayNotPreempt(t *testing.T) {
	never := func(p *v1.Pod) { p.Spec.PreemptionPolicy = new(v1.PreemptNever) }
	newBench(testNode("a", "1")).groups(gang("g", 1, urgent(5))).set(testPod("x", "1", onNode("a"))).set(members("g", 1, "1", priority(5), never)...).want(t,
		"g0: Unschedulable: "+insufficient,
		"group g: False Unschedulable minCount (1) cannot be satisfied: 0 scheduled, 0 remaining, pod group preemption: not eligible due to preemptionPolicy=Never.")
}

// TestGangTooLargeForPreemption: if the gang does not fit without victims either, nothing is preempted.
func TestGangTooLargeForPreemption(t *testing.T) {
	b := newBench(testNode("a", "2")).groups(gang("g", 3, urgent(5))).set(testPod("x", "1", onNode("a"))).set(members("g", 3, "1", priority(5))...)
	got := b.decide()
	want := "group g: False Unschedulable minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, pod group preemption: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
	if len(got) != 4 || got[3] != want || b.cluster.NodeOf("x") != "a" {
		t.Errorf("%q", got)
	}
}

// TestVictimsOfAGroup: a group that is disrupted as one is preempted as one, on all nodes, and only if
// the priority of the group is lower.
func TestVictimsOfAGroup(t *testing.T) {
	for name, test := range map[string]struct {
		group *schedulingv1beta1.PodGroup
		want  string
	}{
		"as one":          {gang("g", 2, asOne), "[g0 g1]"},
		"one by one":      {gang("g", 2), "[g0]"},
		"a higher one":    {gang("g", 2, asOne, urgent(10)), "[]"},
		"without a group": {nil, "[g0]"},
	} {
		b := newBench(testNode("a", "1"), testNode("b", "1", tainted))
		if test.group != nil {
			b.groups(test.group)
		}
		b.set(testPod("g0", "1", onNode("a"), inGroup("g")), testPod("g1", "1", onNode("b"), inGroup("g")), testPod("p", "1", priority(5)))
		d, _ := b.next()
		names := []string{}
		if d.preempt != nil {
			for _, victim := range d.preempt.victims {
				names = append(names, victim.Name)
			}
		}
		if got := fmt.Sprint(names); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestIncompleteGangGoesFirst: after a restart, a gang whose binding was interrupted gets its room
// before other pods, although they are older.
func TestIncompleteGangGoesFirst(t *testing.T) {
	b := newBench(testNode("a", "4")).groups(gang("h", 2), gang("g", 4)).set(members("h", 2, "1")...).
		set(testPod("g0", "1", onNode("a"), inGroup("g")), testPod("g1", "1", onNode("a"), inGroup("g"))).
		set(members("g", 4, "1")[2:]...)
	got := b.decide()
	if want := []string{"g2 -> a", "g3 -> a", "group g: True Scheduled "}; len(got) < 3 || !cmp.Equal(got[:3], want) {
		t.Errorf("%q", got)
	}
}

// TestFailedBindingOfAMember: the others stay, and it is tried again.
func TestFailedBindingOfAMember(t *testing.T) {
	b := newBench(testNode("a", "2")).groups(gang("g", 2)).set(members("g", 2, "1")...)
	b.decide()
	b.notBound("g1", errors.New("refused"))
	b.want(t, "g1: SchedulerError: refused")
	b.clock.Step(20 * time.Second)
	b.want(t, "g1 -> a", "group g: True Scheduled ")
}
