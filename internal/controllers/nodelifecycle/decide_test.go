// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time       { return start.Add(d) }
func atMeta(d time.Duration) metav1.Time { return metav1.NewTime(at(d)) }

func node(name string, ready corev1.ConditionStatus, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-" + "node", CreationTimestamp: atMeta(-time.Hour)}}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: atMeta(0), LastTransitionTime: atMeta(0)}}
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

func has(of corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: of, Status: status})
	}
}

func lease(renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(at(renewed)))}}
}

func TestHealth(t *testing.T) {
	beat := func(d time.Duration) *corev1.Node {
		n := node("n", corev1.ConditionTrue)
		n.Status.Conditions[0].LastHeartbeatTime = atMeta(d)
		return n
	}
	tests := []struct {
		name     string
		before   *corev1.Node
		renewed  *coordinationv1.Lease
		after    *corev1.Node
		then     *coordinationv1.Lease
		deadline time.Duration // observed at 0 s and at 20 s
	}{
		{name: "no heartbeat", before: beat(0), after: beat(0), deadline: 50 * time.Second},
		{name: "new heartbeat in the status", before: beat(0), after: beat(time.Second), deadline: 70 * time.Second},
		{name: "Lease renewed", before: beat(0), renewed: lease(0), after: beat(0), then: lease(time.Second), deadline: 70 * time.Second},
		{name: "first Lease", before: beat(0), after: beat(0), then: lease(-time.Hour), deadline: 70 * time.Second},
		{name: "Lease unchanged", before: beat(0), renewed: lease(0), after: beat(0), then: lease(0), deadline: 50 * time.Second},
		{name: "Lease deleted", before: beat(0), renewed: lease(0), after: beat(0), deadline: 50 * time.Second},
		{name: "node's clock set back", before: beat(0), renewed: lease(0), after: beat(-time.Hour), then: lease(-time.Hour), deadline: 70 * time.Second},
		{name: "no status yet", before: node("n", ""), after: node("n", ""), deadline: 60 * time.Second},
		{name: "no status, but a Lease", before: node("n", ""), after: node("n", ""), then: lease(0), deadline: 80 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := health{}.observe(test.before, test.renewed, at(0)).observe(test.after, test.then, at(20*time.Second))
			if got := h.deadline(test.after).Sub(start); got != test.deadline {
				t.Errorf("deadline at %v, want %v", got, test.deadline)
			}
		})
	}
}

func TestLost(t *testing.T) {
	n := node("n", corev1.ConditionTrue, has(corev1.NodeDiskPressure, corev1.ConditionUnknown), has(corev1.NodeNetworkUnavailable, corev1.ConditionFalse))
	never := func(of corev1.NodeConditionType) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: of, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
			LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: atMeta(time.Minute),
		}
	}
	want := []corev1.NodeCondition{
		{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
			LastHeartbeatTime: atMeta(0), LastTransitionTime: atMeta(time.Minute),
		},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse},
		never(corev1.NodeMemoryPressure),
		never(corev1.NodePIDPressure),
	}
	if diff := cmp.Diff(want, unknownConditions(n, at(time.Minute))); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if readiness(n) != corev1.ConditionTrue {
		t.Error("the node was modified")
	}
}

func TestNoSchedule(t *testing.T) {
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tests := []struct {
		node *corev1.Node
		want []string
	}{
		{node("n", corev1.ConditionTrue, has(corev1.NodeMemoryPressure, corev1.ConditionFalse)), nil},
		{node("n", ""), nil},
		{node("n", corev1.ConditionFalse), []string{corev1.TaintNodeNotReady}},
		{node("n", corev1.ConditionUnknown, has(corev1.NodeMemoryPressure, corev1.ConditionUnknown)), []string{corev1.TaintNodeUnreachable}},
		{
			node("n", corev1.ConditionTrue, cordon, has(corev1.NodeMemoryPressure, corev1.ConditionTrue), has(corev1.NodeDiskPressure, corev1.ConditionTrue),
				has(corev1.NodePIDPressure, corev1.ConditionTrue), has(corev1.NodeNetworkUnavailable, corev1.ConditionTrue)),
			[]string{
				corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure,
				corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable,
			},
		},
	}
	for i, test := range tests {
		if diff := cmp.Diff(test.want, noSchedule(test.node)); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
}

func TestNoExecute(t *testing.T) {
	notReady := tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	unreachable := tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	tests := []struct {
		name      string
		node      *corev1.Node
		evictions bool
		allowed   bool
		want      string
		asked     bool
	}{
		{name: "ready", node: node("n", corev1.ConditionTrue, notReady), evictions: true},
		{name: "not ready, allowed by the rate limit", node: node("n", corev1.ConditionFalse), evictions: true, allowed: true, want: corev1.TaintNodeNotReady, asked: true},
		{name: "not ready, delayed by the rate limit", node: node("n", corev1.ConditionFalse), evictions: true, asked: true},
		{name: "lost, allowed by the rate limit", node: node("n", corev1.ConditionUnknown), evictions: true, allowed: true, want: corev1.TaintNodeUnreachable, asked: true},
		{name: "lost, already tainted", node: node("n", corev1.ConditionUnknown, unreachable), evictions: true, want: corev1.TaintNodeUnreachable},
		{name: "lost after being not ready", node: node("n", corev1.ConditionUnknown, notReady), evictions: true, want: corev1.TaintNodeUnreachable},
		{name: "not ready after being lost", node: node("n", corev1.ConditionFalse, unreachable), evictions: true, want: corev1.TaintNodeNotReady},
		{name: "all nodes lost", node: node("n", corev1.ConditionUnknown), allowed: true},
		{name: "all nodes lost, tainted before", node: node("n", corev1.ConditionUnknown, unreachable)},
		{name: "no status keeps the taint", node: node("n", "", notReady), evictions: true, want: corev1.TaintNodeNotReady},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asked := false
			got := noExecute(test.node, test.evictions, func() bool { asked = true; return test.allowed })
			if got != test.want || asked != test.asked {
				t.Errorf("got %q, asked %v; want %q, %v", got, asked, test.want, test.asked)
			}
		})
	}
}

func TestRetaint(t *testing.T) {
	added := atMeta(-time.Hour)
	before := []corev1.Taint{
		{Key: "user", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added},
		{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule, Value: "kept"},
	}
	now := atMeta(0)
	want := []corev1.Taint{
		before[0], before[3], before[4],
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now},
	}
	got := retaint(before, []string{corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure}, corev1.TaintNodeUnreachable, at(0))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before[:1], retaint(before[:1], nil, "", at(0))); diff != "" {
		t.Errorf("nothing to do (-want +got):\n%s", diff)
	}
}

func TestZoneRate(t *testing.T) {
	tests := []struct {
		zone zone
		want float64
	}{
		{zone{ready: 3}, evictionRate},
		{zone{ready: 1, notReady: 2}, evictionRate},            // fewer than 3 nodes are lost
		{zone{ready: 3, notReady: 3}, evictionRate},            // under 55 %
		{zone{ready: 2, notReady: 3}, 0},                       // disrupted, small zone
		{zone{ready: 20, notReady: 30}, 0},                     // disrupted; 50 nodes are a small zone
		{zone{ready: 20, notReady: 31}, secondaryEvictionRate}, // disrupted; 51 nodes are a large zone
		{zone{notReady: 5}, evictionRate},                      // the whole zone is lost
	}
	for _, test := range tests {
		if got := test.zone.rate(); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.zone, got, test.want)
		}
	}
}

func TestCensus(t *testing.T) {
	in := func(zone string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelTopologyZone: zone} }
	}
	excluded := func(n *corev1.Node) { n.Labels = map[string]string{excludeFromDisruption: ""} }
	const x = ":\x00:x"
	c := newCensus()
	for _, step := range []struct {
		name  string
		do    func()
		zones map[string]zone
		ready int
	}{
		{"none ready", func() {
			c.set(node("a", corev1.ConditionUnknown, in("x")))
			c.set(node("b", corev1.ConditionFalse, in("x")))
			c.set(node("c", ""))
			c.set(node("d", corev1.ConditionTrue, excluded))
		}, map[string]zone{x: {notReady: 2}, "": {notReady: 1}}, 0},
		{"counted again", func() { c.set(node("a", corev1.ConditionUnknown, in("x"))) }, map[string]zone{x: {notReady: 2}, "": {notReady: 1}}, 0},
		{"ready", func() { c.set(node("a", corev1.ConditionTrue, in("x"))) }, map[string]zone{x: {ready: 1, notReady: 1}, "": {notReady: 1}}, 1},
		{"in another zone", func() { c.set(node("a", corev1.ConditionTrue)) }, map[string]zone{x: {notReady: 1}, "": {ready: 1, notReady: 1}}, 1},
		{"excluded", func() { c.set(node("a", corev1.ConditionTrue, excluded)) }, map[string]zone{x: {notReady: 1}, "": {notReady: 1}}, 0},
		{"removed", func() { c.remove("b"); c.remove("b") }, map[string]zone{"": {notReady: 1}}, 0},
	} {
		step.do()
		if diff := cmp.Diff(step.zones, c.zones, cmp.AllowUnexported(zone{})); diff != "" || c.ready != step.ready {
			t.Errorf("%s: %d ready, want %d; zones (-want +got):\n%s", step.name, c.ready, step.ready, diff)
		}
	}
}

func TestLimiter(t *testing.T) {
	var l limiter
	var got []string
	for s := range 25 {
		for _, zone := range []string{"a", "b"} {
			if l.allow(zone, map[string]float64{"a": 0.1, "b": 0}[zone], at(time.Duration(s)*time.Second)) {
				got = append(got, fmt.Sprint(zone, s))
			}
		}
	}
	if diff := cmp.Diff([]string{"a0", "a10", "a20"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEvictionFor(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute} }
	tolerate := func(key string, seconds ...int64) corev1.Toleration {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
		if len(seconds) > 0 {
			t.TolerationSeconds = &seconds[0]
		}
		return t
	}
	tests := []struct {
		name        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		want        eviction
		tolerated   time.Duration
	}{
		{name: "no taint"},
		{name: "taint with another effect", taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}},
		{name: "not tolerated", taints: []corev1.Taint{taint("a")}, want: evictNow},
		{name: "tolerated without limit", taints: []corev1.Taint{taint("a")}, tolerations: []corev1.Toleration{tolerate("a")}},
		{name: "tolerated for a time", taints: []corev1.Taint{taint("a")}, tolerations: []corev1.Toleration{tolerate("a", 300)}, want: evictLater, tolerated: 5 * time.Minute},
		{name: "the shortest time counts", taints: []corev1.Taint{taint("a"), taint("b"), taint("c")}, tolerations: []corev1.Toleration{tolerate("a", 300), tolerate("b", 5), tolerate("c")}, want: evictLater, tolerated: 5 * time.Second},
		{name: "one is not tolerated", taints: []corev1.Taint{taint("a"), taint("b")}, tolerations: []corev1.Toleration{tolerate("a", 300)}, want: evictNow},
		{name: "the first matching toleration counts", taints: []corev1.Taint{taint("a")}, tolerations: []corev1.Toleration{tolerate("a", 300), tolerate("a", 5)}, want: evictLater, tolerated: 5 * time.Minute},
		{name: "zero seconds", taints: []corev1.Taint{taint("a"), taint("b")}, tolerations: []corev1.Toleration{tolerate("a", 0), tolerate("b", 9)}, want: evictNow},
		{name: "negative seconds", taints: []corev1.Taint{taint("a")}, tolerations: []corev1.Toleration{tolerate("a", -1)}, want: evictNow},
		{name: "everything is tolerated", taints: []corev1.Taint{taint("a"), taint("b")}, tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v, tolerated := evictionFor(logr.Discard(), test.taints, test.tolerations)
			if v != test.want || tolerated != test.tolerated {
				t.Errorf("got %v, %v; want %v, %v", v, tolerated, test.want, test.tolerated)
			}
		})
	}
}

func TestTaintedSince(t *testing.T) {
	added := func(d time.Duration) *corev1.Node {
		return node("n", corev1.ConditionUnknown, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{
				{Key: "a", Effect: corev1.TaintEffectNoSchedule},
				{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(atMeta(d))},
			}
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: atMeta(-time.Hour)}}
	tests := []struct {
		name string
		node *corev1.Node
		want time.Duration
	}{
		{"when the taint was added", added(-time.Minute), -time.Minute},
		{"not before the pod was created", added(-2 * time.Hour), -time.Hour},
		{"not in the future", added(time.Minute), 0},
		{"unknown", node("n", corev1.ConditionUnknown, tainted("a", corev1.TaintEffectNoExecute)), 0},
	}
	for _, test := range tests {
		if got := taintedSince(test.node, pod, start).Sub(start); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
