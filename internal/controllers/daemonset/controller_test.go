// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/revisions"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

// bench is a reconciler with its own World, in which there are nodes a, b ... and a DaemonSet.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, nodes int, change ...func(*appsv1.DaemonSet)) bench {
	app := map[string]string{"app": "web"}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{"kubernetes.io/change-cause": "why not"}},
		Spec: appsv1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: app},
			UpdateStrategy:       strategy("1", "0"),
			RevisionHistoryLimit: new(int32(10)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app, Finalizers: []string{"test/running"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
	for _, f := range change {
		f(ds)
	}
	w := controltest.New(t, ds)
	for i := range nodes {
		n := node(string(rune('a' + i)))
		w.Must(w.API.Create(ctx, &n))
	}
	return bench{w, newReconciler(w.Env(), w.Seen, w.Seen), t}
}

func (b bench) reconcile() (ctrl.Result, error) {
	return b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
}

// pass syncs the cache and reconciles once.
func (b bench) pass() ctrl.Result {
	b.t.Helper()
	b.Sync()
	result, err := b.reconcile()
	b.Must(err)
	return result
}

func (b bench) read() *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	b.Must(b.API.Get(ctx, key, ds))
	return ds
}

func (b bench) edit(change func(*appsv1.DaemonSet)) {
	ds := b.read()
	change(ds)
	b.Must(b.API.Update(ctx, ds))
}

func (b bench) image(name string) {
	b.edit(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = name })
}

func (b bench) podList() []corev1.Pod {
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	return list.Items
}

// live acts as the node agents and the scheduler: terminating pods stop, and other pods become
// ready on the node that they were created for.
func (b bench) live() {
	b.t.Helper()
	for _, pod := range b.podList() {
		if pod.DeletionTimestamp != nil {
			pod.Finalizers = nil
			b.Must(b.API.Update(ctx, &pod))
			continue
		}
		if pod.Spec.NodeName == "" {
			pod.Spec.NodeName = nodeOf(&pod)
			b.Must(b.API.Update(ctx, &pod))
		}
		if pod.Status.Phase == "" {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.World.Clock.Now())}}
			b.Must(b.API.Status().Update(ctx, &pod))
		}
	}
}

// settle repeats pass and live until each node has a ready pod of the current revision.
func (b bench) settle() {
	b.t.Helper()
	for range 30 {
		b.pass()
		b.live()
		s := b.read().Status
		if s.ObservedGeneration == b.read().Generation && s.DesiredNumberScheduled > 0 &&
			s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled {
			return
		}
	}
	b.t.Fatalf("the rollout does not finish: %+v", b.read().Status)
}

// history lists the revisions as "number image".
func (b bench) history() []string {
	list := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, list))
	var out []string
	for _, revision := range list.Items {
		out = append(out, fmt.Sprintf("%d %s", revision.Revision, b.restored(&revision).Spec.Template.Spec.Containers[0].Image))
	}
	slices.Sort(out)
	return out
}

// restored returns the DaemonSet as kubectl rollout undo restores it to a revision.
func (b bench) restored(revision *appsv1.ControllerRevision) *appsv1.DaemonSet {
	current, err := json.Marshal(b.read())
	b.Must(err)
	patched, err := strategicpatch.StrategicMergePatch(current, revision.Data.Raw, &appsv1.DaemonSet{})
	b.Must(err)
	out := &appsv1.DaemonSet{}
	b.Must(json.Unmarshal(patched, out))
	return out
}

func TestOnePodOnEachNode(t *testing.T) {
	b := newBench(t, 2, func(ds *appsv1.DaemonSet) {
		ds.Annotations[appsv1.DeprecatedTemplateGeneration] = "3"
		ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{
			{Key: "mine", Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))},
		}
		ds.Spec.Template.Spec.HostNetwork = true
		ds.Spec.Template.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{},
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"z"}}}}}}},
		}
	})
	b.pass()
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	tolerations := []corev1.Toleration{
		{Key: "mine", Operator: corev1.TolerationOpExists},
		exists("node.kubernetes.io/not-ready", corev1.TaintEffectNoExecute), exists("node.kubernetes.io/unreachable", corev1.TaintEffectNoExecute),
		exists("node.kubernetes.io/disk-pressure", corev1.TaintEffectNoSchedule), exists("node.kubernetes.io/memory-pressure", corev1.TaintEffectNoSchedule),
		exists("node.kubernetes.io/pid-pressure", corev1.TaintEffectNoSchedule), exists("node.kubernetes.io/unschedulable", corev1.TaintEffectNoSchedule),
		exists("node.kubernetes.io/network-unavailable", corev1.TaintEffectNoSchedule),
	}
	list := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, list))
	if len(list.Items) != 1 {
		t.Fatalf("revisions %v", b.history())
	}
	revision := list.Items[0]
	events := b.Events()
	var on []string
	for _, pod := range b.podList() {
		on = append(on, nodeOf(&pod))
		if diff := cmp.Diff(tolerations, pod.Spec.Tolerations); diff != "" {
			t.Errorf("tolerations (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"app": "web", "controller-revision-hash": revision.Labels[hashLabel], "pod-template-generation": "3"}, pod.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]metav1.OwnerReference{*metav1.NewControllerRef(b.read(), kind)}, pod.OwnerReferences); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
		if pod.Spec.NodeName != "" || pod.Spec.Affinity.PodAffinity == nil || !strings.HasPrefix(pod.Name, "web-") {
			t.Errorf("pod %s: node %q, affinity %v", pod.Name, pod.Spec.NodeName, pod.Spec.Affinity)
		}
		if !slices.Contains(events, "Normal SuccessfulCreate Created pod: "+pod.Name) {
			t.Errorf("no event for %s in %q", pod.Name, events)
		}
	}
	slices.Sort(on)
	if diff := cmp.Diff([]string{"a", "b"}, on); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if revision.Revision != 1 || revision.Name != "web-"+revision.Labels[hashLabel] || revision.Labels["app"] != "web" ||
		revision.Annotations["kubernetes.io/change-cause"] != "why not" || !metav1.IsControlledBy(&revision, b.read()) {
		t.Errorf("revision %+v", revision)
	}
	if diff := cmp.Diff(b.read().Spec.Template, b.restored(&revision).Spec.Template); diff != "" {
		t.Errorf("template, restored from its own revision (-want +got):\n%s", diff)
	}
}

// With a stale cache, no node gets two pods, no pod is deleted twice, and no revision is created
// twice.
func TestStaleCache(t *testing.T) {
	b := newBench(t, 5)
	b.Sync()
	for range 3 {
		_, err := b.reconcile()
		b.Must(err)
	}
	if n := len(b.podList()); n != 5 || len(b.history()) != 1 {
		t.Errorf("%d pods and revisions %v for 5 nodes", n, b.history())
	}
	b.settle()
	b.Events()
	b.image("v2")
	b.Sync()
	for range 3 {
		_, err := b.reconcile()
		b.Must(err)
	}
	events := b.Events()
	if len(events) != 1 || !strings.HasPrefix(events[0], "Normal SuccessfulDelete Deleted pod: ") {
		t.Errorf("events with maxUnavailable 1 and a stale cache: %q", events)
	}
	if n := len(b.podList()); n != 5 {
		t.Errorf("%d pods: the next one was deleted before the first was removed", n)
	}
}

func TestRolloutUndoAndHistory(t *testing.T) {
	b := newBench(t, 3, func(ds *appsv1.DaemonSet) { ds.Spec.RevisionHistoryLimit = new(int32(1)) })
	b.settle()
	b.image("v2")
	b.settle()
	if diff := cmp.Diff([]string{"1 v1", "2 v2"}, b.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	// After an undo in the middle of the rollout, pods that were not replaced yet stay.
	before := map[string]bool{}
	for _, pod := range b.podList() {
		before[pod.Name] = true
	}
	b.image("v3")
	b.pass()
	b.live()
	b.pass()
	b.image("v2")
	b.settle()
	kept := 0
	for _, pod := range b.podList() {
		if before[pod.Name] {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d of 3 pods were kept; one had been replaced", kept)
	}
	b.pass()
	if diff := cmp.Diff([]string{"3 v3", "4 v2"}, b.history()); diff != "" {
		t.Errorf("history of at most one old revision (-want +got):\n%s", diff)
	}
}

// A revision that has a pod is kept, even beyond the limit.
func TestRevisionsInUseAreKept(t *testing.T) {
	b := newBench(t, 1, func(ds *appsv1.DaemonSet) {
		ds.Spec.RevisionHistoryLimit = new(int32(0))
		ds.Spec.UpdateStrategy = onDelete
	})
	b.settle()
	b.image("v2")
	b.pass()
	b.image("v3")
	b.pass()
	b.pass()
	if diff := cmp.Diff([]string{"1 v1", "3 v3"}, b.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// A restored backup may contain two revisions of one template. The newer one stays, and gets the
// pods of the other.
func TestDuplicateRevisionsAreMerged(t *testing.T) {
	b := newBench(t, 2)
	b.settle()
	list := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, list))
	twin := list.Items[0].DeepCopy()
	twin.ObjectMeta = metav1.ObjectMeta{Namespace: "ns", Name: "web-twin", OwnerReferences: twin.OwnerReferences,
		Labels: map[string]string{"app": "web", hashLabel: "twin"}}
	twin.Revision = 5
	b.Must(b.API.Create(ctx, twin))
	b.Events()
	b.pass()
	b.pass()
	if diff := cmp.Diff([]string{"5 v1"}, b.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	for _, pod := range b.podList() {
		if pod.Labels[hashLabel] != "twin" {
			t.Errorf("pod %s is of revision %s", pod.Name, pod.Labels[hashLabel])
		}
	}
	if events := b.Events(); len(events) != 0 {
		t.Errorf("pods were created or deleted: %q", events)
	}
}

// Another object has the name of the new revision, so the collision count changes the name.
func TestHashCollision(t *testing.T) {
	b := newBench(t, 1)
	data, err := revisions.PatchTo(&b.read().Spec.Template)
	b.Must(err)
	wanted := b.revisions.New(b.read(), nil, data, nil)
	b.Must(b.API.Create(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: wanted.Name}}))
	b.Sync()
	if _, err := b.reconcile(); err == nil {
		t.Error("no error, so the request is not retried")
	}
	if count := b.read().Status.CollisionCount; count == nil || *count != 1 {
		t.Fatalf("collision count %v", count)
	}
	b.settle()
	if count := b.read().Status.CollisionCount; *count != 1 {
		t.Errorf("collision count %d after the collision was resolved", *count)
	}
}

func TestAdoptAndRelease(t *testing.T) {
	b := newBench(t, 2, func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy = onDelete })
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "orphan", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "a"}}
	b.Must(b.API.Create(ctx, orphan))
	b.pass()
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(orphan), orphan))
	if !metav1.IsControlledBy(orphan, b.read()) || len(b.podList()) != 2 {
		t.Errorf("%d pods; the orphan on node a has owners %v", len(b.podList()), orphan.OwnerReferences)
	}
	b.live()
	b.pass()
	released := b.podList()[0]
	released.Labels = map[string]string{"app": "debug"}
	b.Must(b.API.Update(ctx, &released))
	b.pass()
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(&released), &released))
	if len(released.OwnerReferences) != 0 || len(b.podList()) != 3 {
		t.Errorf("%d pods; the released one has owners %v", len(b.podList()), released.OwnerReferences)
	}
}

func TestFailedPodsAreReplacedWithBackoff(t *testing.T) {
	b := newBench(t, 1, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Finalizers = nil })
	fail := func() string {
		pod := b.podList()[0]
		pod.Spec.NodeName = "a"
		b.Must(b.API.Update(ctx, &pod))
		pod.Status.Phase = corev1.PodFailed
		b.Must(b.API.Status().Update(ctx, &pod))
		return pod.Name
	}
	b.pass()
	first := fail()
	b.Events()
	b.pass()
	want := []string{"Warning FailedDaemonPod Found failed daemon pod ns/" + first + " on node a, will try to kill it", "Normal SuccessfulDelete Deleted pod: " + first}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, wait := range []time.Duration{1, 2, 4} {
		wait *= time.Second
		b.pass()
		failed := fail()
		if result := b.pass(); result.RequeueAfter != wait || b.podList()[0].Name != failed {
			t.Errorf("requeued after %v, want %v", result.RequeueAfter, wait)
		}
		b.World.Clock.Step(wait)
		b.pass()
		if len(b.podList()) != 0 {
			t.Errorf("the pod still exists %v later", wait)
		}
	}
}

func TestSucceededPodsAreReplaced(t *testing.T) {
	b := newBench(t, 1)
	b.settle()
	pod := b.podList()[0]
	pod.Status.Phase = corev1.PodSucceeded
	b.Must(b.API.Status().Update(ctx, &pod))
	b.Events()
	b.pass()
	want := []string{"Normal SucceededDaemonPod Found succeeded daemon pod ns/" + pod.Name + " on node a, will try to delete it", "Normal SuccessfulDelete Deleted pod: " + pod.Name}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestMinReadySeconds(t *testing.T) {
	b := newBench(t, 1, func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 10 })
	b.pass()
	b.live()
	b.World.Clock.Step(4 * time.Second)
	if result := b.pass(); result.RequeueAfter != 6*time.Second || b.read().Status.NumberReady != 1 || b.read().Status.NumberUnavailable != 1 {
		t.Errorf("requeued after %v, status %+v", result.RequeueAfter, b.read().Status)
	}
	b.World.Clock.Step(6 * time.Second)
	if result := b.pass(); result.RequeueAfter != 0 || b.read().Status.NumberAvailable != 1 || b.read().Status.NumberUnavailable != 0 {
		t.Errorf("requeued after %v, status %+v", result.RequeueAfter, b.read().Status)
	}
}

// If a quota or a webhook refuses pods, only a few creations are tried, the status is still
// reported, and the error requeues the DaemonSet.
func TestRefusedPodsAreReported(t *testing.T) {
	b := newBench(t, 20)
	tried := 0
	b.Refuse = func(verb string, obj client.Object) error {
		if _, pod := obj.(*corev1.Pod); !pod {
			return nil
		}
		tried++
		return errors.New("no")
	}
	b.Sync()
	if _, err := b.reconcile(); err == nil || tried != 1 {
		t.Errorf("error %v after %d tries", err, tried)
	}
	if s := b.read().Status; s.DesiredNumberScheduled != 20 || s.NumberUnavailable != 20 || s.ObservedGeneration != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestDeletedDaemonSetIsLeftAlone(t *testing.T) {
	b := newBench(t, 1)
	ds := b.read()
	ds.Finalizers = []string{"foregroundDeletion"}
	b.Must(b.API.Update(ctx, ds))
	b.Must(b.API.Delete(ctx, ds))
	b.pass()
	if len(b.podList()) != 0 || len(b.history()) != 0 || b.read().Status.ObservedGeneration != 0 {
		t.Errorf("%d pods, history %v, status %+v", len(b.podList()), b.history(), b.read().Status)
	}
}

func TestEmptySelectorIsRefused(t *testing.T) {
	b := newBench(t, 1, func(ds *appsv1.DaemonSet) { ds.Spec.Selector = &metav1.LabelSelector{} })
	b.pass()
	want := []string{"Warning SelectingAll This daemon set is selecting all pods. A non-empty selector is required."}
	if diff := cmp.Diff(want, b.Events()); diff != "" || len(b.podList()) != 0 {
		t.Errorf("%d pods, events (-want +got):\n%s", len(b.podList()), diff)
	}
}

// TestDeletedOwner: nothing is created for a DaemonSet that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	b := newBench(t, 3)
	b.Sync()
	b.Must(b.API.Delete(ctx, b.read()))
	_, err := b.reconcile()
	b.Must(client.IgnoreNotFound(err)) // the status
	if n := len(b.podList()); n != 0 {
		t.Errorf("%d pods", n)
	}
}
