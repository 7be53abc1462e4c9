// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/podgc"
)

func TestFitness(t *testing.T) {
	labelled := node("a")
	labelled.Labels = map[string]string{"disk": "ssd"}
	cordoned := node("a", corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	cordoned.Spec.Unschedulable = true
	no, may, stays := fitness{}, fitness{start: true, stay: true}, fitness{stay: true}
	inOrNot := func(op corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: op, Values: values}}}}}}}
	}
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
		node corev1.Node
		want fitness
	}{
		{"no requirements", corev1.PodSpec{}, node("a"), may},
		{"another node by name", corev1.PodSpec{NodeName: "b"}, node("a"), no},
		{"this node by name", corev1.PodSpec{NodeName: "a"}, node("a"), may},
		{"node selector does not match", corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, node("a"), no},
		{"node selector matches", corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, labelled, may},
		{"affinity matches", corev1.PodSpec{Affinity: inOrNot(corev1.NodeSelectorOpIn, "ssd", "nvme")}, labelled, may},
		{"anti-affinity to the label", corev1.PodSpec{Affinity: inOrNot(corev1.NodeSelectorOpNotIn, "ssd")}, labelled, no},
		{"cordoned", corev1.PodSpec{}, cordoned, may},
		{"not ready", corev1.PodSpec{}, node("a", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}), may},
		{"not ready yet", corev1.PodSpec{}, node("a", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}), stays},
		{"no network yet", corev1.PodSpec{}, node("a", corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}), stays},
		{"no network yet, host network", corev1.PodSpec{HostNetwork: true}, node("a", corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}), may},
		{"NoSchedule", corev1.PodSpec{}, node("a", noSchedule), stays},
		{"NoExecute", corev1.PodSpec{}, node("a", noExecute), no},
		{"PreferNoSchedule", corev1.PodSpec{}, node("a", corev1.Taint{Key: "x", Effect: corev1.TaintEffectPreferNoSchedule}), may},
		{"taints are tolerated", corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}, node("a", noSchedule, noExecute), may},
	} {
		ds := &appsv1.DaemonSet{}
		ds.Spec.Template.Spec = tc.spec
		if got := newFitter(ds).fit(&tc.node); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestWatches runs the controller under a manager: each relevant change wakes it.
func TestWatches(t *testing.T) {
	b := newBench(t, 1, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Finalizers = nil })
	b.Run(t, control.Controller{Name: Name, Add: Add}, control.Controller{Name: podgc.Name, Add: podgc.Add(0)})
	on := func(want ...string) func() bool {
		return func() bool {
			var have []string
			for _, pod := range b.podList() {
				have = append(have, nodeOf(&pod))
			}
			slices.Sort(have)
			return slices.Equal(have, want)
		}
	}
	eventually(t, "a pod on the node", on("a"))
	n := node("b")
	b.Must(b.API.Create(ctx, &n))
	eventually(t, "a pod on the new node", on("a", "b"))
	n.Spec.Taints = []corev1.Taint{noExecute}
	b.Must(b.API.Update(ctx, &n))
	eventually(t, "no pod on the tainted node", on("a"))
	n.Spec.Taints = nil
	b.Must(b.API.Update(ctx, &n))
	eventually(t, "a pod on the untainted node", on("a", "b"))
	b.Must(b.API.Delete(ctx, &n))
	eventually(t, "no pod for the deleted node", on("a"))
	pod := b.podList()[0]
	b.Must(b.API.Delete(ctx, &pod))
	eventually(t, "a new pod for the deleted one", func() bool { return on("a")() && b.podList()[0].Name != pod.Name })

	list := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, list))
	b.Must(b.API.Delete(ctx, &list.Items[0]))
	eventually(t, "a new revision for the deleted one", func() bool { return len(b.history()) == 1 })
	b.Must(b.API.List(ctx, list))
	orphan := &list.Items[0]
	orphan.OwnerReferences = nil
	b.Must(b.API.Update(ctx, orphan))
	eventually(t, "the orphaned revision is adopted", func() bool {
		b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(orphan), orphan))
		return len(orphan.OwnerReferences) == 1
	})
	eventually(t, "the status is updated", func() bool { return fmt.Sprint(b.read().Status.DesiredNumberScheduled) == "1" })
}

// eventually waits until check returns true. The controller runs concurrently.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if check() {
			return
		}
	}
	t.Fatalf("timed out waiting: %s", what)
}
