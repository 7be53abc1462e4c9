// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

func strategy(unavailable, surge string) appsv1.DaemonSetUpdateStrategy {
	u, s := intstr.Parse(unavailable), intstr.Parse(surge)
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &s},
	}
}

var onDelete = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}

// sketch returns a pod described by words: "a1 new ready" is a ready pod named a1 on node a, of the
// current revision. Other words: old, pending (not bound yet), failed, succeeded, going
// (terminating), fresh (ready for less than minReadySeconds).
func sketch(text string) *corev1.Pod {
	words := strings.Fields(text)
	name := words[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{hashLabel: "old"}},
		Spec:       corev1.PodSpec{NodeName: name[:1]},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	pod.CreationTimestamp = metav1.NewTime(controltest.Start.Add(time.Duration(name[1]) * time.Second))
	ready := func(ago time.Duration) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(sketchNow.Add(-ago))}}
	}
	for _, word := range words[1:] {
		switch word {
		case "old":
		case "new":
			pod.Labels[hashLabel] = "new"
		case "pending":
			pod.Spec.NodeName = ""
			pod.Status.Phase = corev1.PodPending
			requireNode(&pod.Spec, name[:1])
		case "ready":
			ready(time.Hour)
		case "fresh":
			ready(time.Second)
		case "failed":
			pod.Status.Phase = corev1.PodFailed
		case "succeeded":
			pod.Status.Phase = corev1.PodSucceeded
		case "going":
			pod.DeletionTimestamp = &metav1.Time{Time: sketchNow}
		default:
			panic(word)
		}
	}
	return pod
}

var sketchNow = controltest.Start.Add(24 * time.Hour)

func node(name string, taints ...corev1.Taint) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
}

var (
	noSchedule = corev1.Taint{Key: "busy", Effect: corev1.TaintEffectNoSchedule}
	noExecute  = corev1.Taint{Key: "ill", Effect: corev1.TaintEffectNoExecute}
)

func names(of []*corev1.Pod) string {
	var out []string
	for _, pod := range of {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (p plan) String() string {
	create := slices.Clone(p.create)
	slices.Sort(create)
	return fmt.Sprintf("create [%s] remove [%s] failed [%s] succeeded [%s]",
		strings.Join(create, " "), names(p.remove), names(p.failed), names(p.succeeded))
}

func TestPlan(t *testing.T) {
	replace, surge := strategy("1", "0"), strategy("0", "1")
	two := []corev1.Node{node("a"), node("b")}
	for _, tc := range []struct {
		name     string
		strategy appsv1.DaemonSetUpdateStrategy
		nodes    []corev1.Node
		pods     []string
		want     string
	}{
		{"no pods: creates one for each node", replace, two, nil, "create [a b] remove [] failed [] succeeded []"},
		{"one pod on each node: no change", replace, two, []string{"a1 new ready", "b1 new"}, "create [] remove [] failed [] succeeded []"},
		{"a pending pod counts", replace, two, []string{"a1 new pending", "b1 new"}, "create [] remove [] failed [] succeeded []"},
		{"tainted nodes get no pod", replace, []corev1.Node{node("a", noSchedule), node("b", noExecute)}, nil, "create [] remove [] failed [] succeeded []"},
		{"an existing pod tolerates a new NoSchedule taint", replace, []corev1.Node{node("a", noSchedule)}, []string{"a1 new ready"}, "create [] remove [] failed [] succeeded []"},
		{"a NoExecute taint removes pods", replace, []corev1.Node{node("a", noExecute)}, []string{"a1 new ready", "a2 new"}, "create [] remove [a1 a2] failed [] succeeded []"},
		{"a terminating pod occupies its node", replace, two[:1], []string{"a1 new going"}, "create [] remove [] failed [] succeeded []"},
		{"a terminating pod that has ended does not", replace, two[:1], []string{"a1 new failed going"}, "create [a] remove [] failed [] succeeded []"},
		{"of several pods, the oldest stays", replace, two[:1], []string{"a3 new ready", "a1 new", "a2 new ready"}, "create [] remove [a2 a3] failed [] succeeded []"},
		{"of several pods, a bound one stays before an older pending one", replace, two[:1], []string{"a1 new pending", "a2 new"}, "create [] remove [a1] failed [] succeeded []"},
		{"ended pods are removed", replace, two, []string{"a1 new failed", "b1 new succeeded"}, "create [] remove [] failed [a1] succeeded [b1]"},
		{"a failed pod of an old revision needs no backoff", replace, two[:1], []string{"a1 old failed"}, "create [] remove [a1] failed [] succeeded []"},
		{"OnDelete: a failed pod of an old revision has a backoff", onDelete, two[:1], []string{"a1 old failed"}, "create [] remove [] failed [a1] succeeded []"},
		{"deleted node: only its pending pods are removed", replace, two[:1], []string{"a1 new ready", "z1 new pending", "z2 new ready"}, "create [] remove [z1] failed [] succeeded []"},

		{"replace: one pod at a time", replace, two, []string{"a1 old ready", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"replace: waits until the deleted pod has stopped", replace, two, []string{"a1 old ready going", "b1 old ready"}, "create [] remove [] failed [] succeeded []"},
		{"replace: waits until the new pod is ready", replace, two, []string{"a2 new", "b1 old ready"}, "create [] remove [] failed [] succeeded []"},
		{"replace: waits until the new pod is available", replace, two, []string{"a2 new fresh", "b1 old ready"}, "create [] remove [] failed [] succeeded []"},
		{"replace: continues when the new pod is available", replace, two, []string{"a2 new ready", "b1 old ready"}, "create [] remove [b1] failed [] succeeded []"},
		{"replace: deletes all unavailable pods", replace, two, []string{"a1 old", "b1 old"}, "create [] remove [a1 b1] failed [] succeeded []"},
		{"replace: an unavailable pod counts towards the limit", replace, two, []string{"a1 old", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"replace: a node without a pod counts towards the limit", replace, two, []string{"b1 old ready"}, "create [a] remove [] failed [] succeeded []"},
		{"replace: maxUnavailable 50% of two nodes", strategy("50%", "0"), two, []string{"a1 old ready", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"replace: maxUnavailable 51% of two nodes is rounded up", strategy("51%", "0"), two, []string{"a1 old ready", "b1 old ready"}, "create [] remove [a1 b1] failed [] succeeded []"},
		{"replace: limits of 0 count as maxUnavailable 1", strategy("0", "0"), two, []string{"a1 old ready", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"OnDelete: outdated pods stay", onDelete, two, []string{"a1 old ready", "b1 old"}, "create [] remove [] failed [] succeeded []"},

		{"surge: creates a second pod", surge, two, []string{"a1 old ready", "b1 old ready"}, "create [a] remove [] failed [] succeeded []"},
		{"surge: waits until the new pod is available", surge, two, []string{"a1 old ready", "a2 new fresh", "b1 old ready"}, "create [] remove [] failed [] succeeded []"},
		{"surge: deletes the old pod when the new one is available", surge, two, []string{"a1 old ready", "a2 new ready", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"surge: deletes an old pod that is not ready", surge, two, []string{"a1 old", "a2 new", "b1 old ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"surge: continues while the old pod stops", surge, two, []string{"a1 old ready going", "a2 new ready", "b1 old ready"}, "create [b] remove [] failed [] succeeded []"},
		{"surge: an unavailable old pod does not count towards the limit", surge, two, []string{"a1 old", "b1 old ready"}, "create [a b] remove [] failed [] succeeded []"},
		{"surge: at most one pod of each revision", surge, two[:1], []string{"a1 old ready", "a2 old ready", "a3 new", "a4 new"}, "create [] remove [a2 a4] failed [] succeeded []"},
		{"surge: does not wait for a stopping pod", surge, two[:1], []string{"a1 new ready going"}, "create [a] remove [] failed [] succeeded []"},
		{"surge: an available pod on an unfit node stays while others are unavailable", surge, []corev1.Node{node("a", noSchedule), node("b")}, []string{"a1 old ready", "b1 new"}, "create [] remove [] failed [] succeeded []"},
		{"surge: an available pod on an unfit node is deleted when others are available", surge, []corev1.Node{node("a", noSchedule), node("b")}, []string{"a1 old ready", "b1 new ready"}, "create [] remove [a1] failed [] succeeded []"},
		{"surge: an unavailable pod on an unfit node is deleted immediately", surge, []corev1.Node{node("a", noSchedule), node("b")}, []string{"a1 old", "b1 new"}, "create [] remove [a1] failed [] succeeded []"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: tc.strategy, MinReadySeconds: 10}}
			var claimed []*corev1.Pod
			for _, text := range tc.pods {
				claimed = append(claimed, sketch(text))
			}
			if diff := cmp.Diff(tc.want, newView(ds, stamp{hash: "new"}, tc.nodes, claimed, sketchNow).plan().String()); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// The label from before revisions existed still identifies a template.
func TestStampKnowsTheTemplateGeneration(t *testing.T) {
	pod := sketch("a1 old")
	pod.Labels[generationLabel] = "7"
	for annotation, want := range map[string]bool{"7": true, "8": false, "": false, "seven": false} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: annotation}}}
		if got := stampOf(ds, "new").isOn(pod); got != want {
			t.Errorf("generation %q: updated is %v", annotation, got)
		}
	}
	delete(pod.Labels, generationLabel)
	if stampOf(&appsv1.DaemonSet{}, "new").isOn(pod) {
		t.Error("without a generation, a pod without the label matched")
	}
}

func TestStatusCountsNodes(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Spec: appsv1.DaemonSetSpec{MinReadySeconds: 10}}
	ds.Status.CollisionCount = new(int32)
	nodes := []corev1.Node{node("a"), node("b"), node("c"), node("d"), node("e", noSchedule), node("f", noExecute), node("g", noSchedule)}
	var claimed []*corev1.Pod
	for _, text := range []string{"a1 new ready", "a2 old", "b1 old ready", "c1 new fresh", "e1 new ready", "f1 old", "f2 old", "z1 new ready"} {
		claimed = append(claimed, sketch(text))
	}
	want := appsv1.DaemonSetStatus{
		ObservedGeneration: 4, DesiredNumberScheduled: 4, CurrentNumberScheduled: 3, NumberMisscheduled: 2,
		NumberReady: 3, NumberAvailable: 2, NumberUnavailable: 2, UpdatedNumberScheduled: 2, CollisionCount: new(int32),
	}
	if diff := cmp.Diff(want, newView(ds, stamp{hash: "new"}, nodes, claimed, sketchNow).status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// model is a small cluster: nodes that get and lose taints, and pods that start, become
// ready, stop being ready, fail and stop.
type model struct {
	rng   *rand.Rand
	ds    *appsv1.DaemonSet
	stamp string
	now   time.Time
	nodes map[string]corev1.Node
	pods  map[string]*corev1.Pod
	made  int
}

func newModel(rng *rand.Rand) *model {
	strategies := []appsv1.DaemonSetUpdateStrategy{onDelete, strategy("1", "0"), strategy("2", "0"), strategy("40%", "0"), strategy("0", "1"), strategy("0", "50%")}
	m := &model{rng: rng, ds: &appsv1.DaemonSet{}, stamp: "r0", now: controltest.Start, nodes: map[string]corev1.Node{}, pods: map[string]*corev1.Pod{}}
	m.ds.Name = "web"
	m.ds.Spec.UpdateStrategy = strategies[rng.Intn(len(strategies))]
	m.ds.Spec.MinReadySeconds = int32(rng.Intn(3))
	for i := range 1 + rng.Intn(6) {
		name := string(rune('a' + i))
		m.nodes[name] = node(name)
	}
	return m
}

func (m *model) view() view {
	return newView(m.ds, stamp{hash: m.stamp}, sorted(m.nodes), sorted(m.pods), m.now)
}

func sorted[T any](of map[string]T) []T {
	var out []T
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[key])
	}
	return out
}

// disturb makes a random change that does not come from the controller.
func (m *model) disturb() {
	name := string(rune('a' + m.rng.Intn(7)))
	switch m.rng.Intn(8) {
	case 0:
		m.stamp = fmt.Sprintf("r%d", m.rng.Intn(3))
	case 1:
		m.nodes[name] = node(name)
	case 2:
		m.nodes[name] = node(name, []corev1.Taint{noSchedule, noExecute}[m.rng.Intn(2)])
	case 3:
		delete(m.nodes, name)
	default:
		if len(m.pods) > 0 {
			m.upset(sorted(m.pods)[m.rng.Intn(len(m.pods))])
		}
	}
}

func (m *model) upset(pod *corev1.Pod) {
	switch m.rng.Intn(4) {
	case 0:
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Conditions = nil
	case 1:
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.Conditions = nil
	case 2:
		pod.Status.Conditions = nil
	case 3:
		pod.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
}

// advance lets time pass: terminating pods stop, other pods are bound and become ready. At the
// end of a test that applies to all pods, before to some.
func (m *model) advance(all bool) {
	m.now = m.now.Add(time.Second)
	for _, pod := range sorted(m.pods) {
		_, exists := m.nodes[nodeOf(pod)]
		switch {
		case !all && m.rng.Intn(2) == 0:
		case pod.DeletionTimestamp != nil, !exists && pod.Spec.NodeName != "": // as the pod garbage collector does
			delete(m.pods, pod.Name)
		case !exists || pods.IsTerminal(pod):
		case pod.Spec.NodeName == "":
			pod.Spec.NodeName = nodeOf(pod)
			pod.Status.Phase = corev1.PodRunning
		case !pods.IsReady(pod):
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(m.now)}}
		}
	}
}

func (m *model) apply(p plan) {
	for _, pod := range slices.Concat(p.remove, p.failed, p.succeeded) {
		pod.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	for _, at := range p.create {
		m.made++
		pod := newPod(m.ds, at, stamp{hash: m.stamp})
		pod.Name = fmt.Sprintf("p%04d", m.made)
		pod.UID = types.UID(pod.Name)
		pod.CreationTimestamp = metav1.NewTime(m.now)
		pod.Status.Phase = corev1.PodPending
		m.pods[pod.Name] = pod
	}
}

// unserved returns how many fit nodes have no available pod that may stay.
func unserved(v view) (n int) {
	for i := range v.places {
		at := &v.places[i]
		if at.start && !slices.ContainsFunc(at.alive(), v.available) {
			n++
		}
	}
	return n
}

// check compares a plan with the guarantees of the API, before and after it was applied.
func (m *model) check(t *testing.T, before view, p plan, gone int) {
	t.Helper()
	surge := before.surges()
	created := map[string]int{}
	for _, at := range p.create {
		created[at]++
	}
	after := m.view()
	for i := range after.places {
		at := &after.places[i]
		alive := pods.Filter(at.alive(), pods.IsActive)
		updated, outdated := after.splitByRevision(alive)
		switch {
		case created[at.node] > 0 && !at.start:
			t.Fatalf("a pod was created on %s, which does not fit", at.node)
		case created[at.node] > 1:
			t.Fatalf("%d pods were created on %s at once", created[at.node], at.node)
		case created[at.node] > 0 && !surge && len(at.pods) > 1:
			t.Fatalf("a pod was created on %s, which has others: %v", at.node, names(at.pods))
		case at.exists && !at.stay && len(alive) > 0:
			t.Fatalf("%v stay on %s, which does not fit", names(alive), at.node)
		case at.exists && surge && (len(updated) > 1 || len(outdated) > 1):
			t.Fatalf("two pods of one revision stay on %s: %v", at.node, names(alive))
		case at.exists && !surge && len(alive) > 1:
			t.Fatalf("%d pods stay on %s", len(alive), at.node)
		}
	}
	limit := 0
	if m.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		limit = before.limitsFor(before.desired()).unavailable
	}
	if now := unserved(after); now > max(gone, limit) {
		t.Fatalf("%d nodes are without an available pod, %d were before; the limit is %d", now, gone, limit)
	}
}

// settled returns nil if each fit node has one pod, which has the current revision if the
// strategy is RollingUpdate, and no other node has a pod that may not stay.
func (m *model) settled() error {
	v := m.view()
	for i := range v.places {
		at := &v.places[i]
		switch {
		case at.start && len(at.pods) != 1, !at.stay && len(at.pods) != 0, len(at.pods) > 1:
			return fmt.Errorf("%s (%+v) has %v", at.node, at.fitness, names(at.pods))
		case at.start && m.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && !v.stamp.isOn(at.pods[0]):
			return fmt.Errorf("%s has the outdated pod %s", at.node, at.pods[0].Name)
		}
	}
	return nil
}

// TestPlanKeepsLimits makes random changes in a cluster. Each plan must respect the limits, and when
// the changes end, the plans must lead to the desired state.
func TestPlanKeepsLimits(t *testing.T) {
	for seed := range int64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(rand.New(rand.NewSource(seed)))
			step := func() plan {
				v := m.view()
				gone := unserved(v)
				p := v.plan()
				m.apply(p)
				m.check(t, v, p, gone)
				return p
			}
			for range 60 {
				m.disturb()
				step()
				m.advance(false)
			}
			idle := 0
			for rounds := 0; rounds < 200 && idle < 10; rounds++ {
				m.advance(true)
				if idle++; step().String() != (plan{}).String() {
					idle = 0
				}
			}
			if err := m.settled(); err != nil || idle < 10 {
				t.Errorf("the desired state is not reached (%d idle steps): %v", idle, err)
			}
		})
	}
}
