// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

// bench is a reconciler in a world of its own, with one StatefulSet.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, set *appsv1.StatefulSet, others ...client.Object) bench {
	w := controltest.New(t, append(others, set)...)
	return bench{w, newReconciler(w.Env(), w.Seen, w.Seen), t}
}

func (b bench) reconcile() (ctrl.Result, error) {
	b.Sync()
	return b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
}

// settle reconciles until nothing changes any more.
func (b bench) settle() *appsv1.StatefulSet {
	b.t.Helper()
	for range 20 {
		before := b.state()
		_, err := b.reconcile()
		b.Must(err)
		if b.state() == before {
			return b.read()
		}
	}
	b.t.Fatalf("not settled: %s", b.state())
	return nil
}

// run reconciles, with a node that runs and stops pods at once.
func (b bench) run() *appsv1.StatefulSet {
	b.t.Helper()
	for range 100 {
		before := b.state()
		_, err := b.reconcile()
		b.Must(err)
		for _, pod := range b.pods() {
			b.advance(pod)
		}
		if b.state() == before {
			return b.read()
		}
	}
	b.t.Fatalf("not settled: %s", b.state())
	return nil
}

// advance makes a pod ready, or removes a terminating one.
func (b bench) advance(pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil:
		pod.Finalizers = nil
		b.Must(b.API.Update(ctx, pod))
	case pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending:
		b.setReady(pod)
	}
}

func (b bench) setReady(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.Clock.Now())}}
	b.Must(b.API.Status().Update(ctx, pod))
}

func (b bench) read() *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{}
	b.Must(b.API.Get(ctx, key, set))
	return set
}

func (b bench) edit(change func(*appsv1.StatefulSet)) {
	set := b.read()
	change(set)
	b.Must(b.API.Update(ctx, set))
}

func (b bench) pods() []*corev1.Pod {
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var out []*corev1.Pod
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func (b bench) pod(name string) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, pod))
	return pod
}

func (b bench) claim(name string) *corev1.PersistentVolumeClaim {
	b.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, claim))
	return claim
}

func (b bench) revisionNames() (names []string) {
	list := &appsv1.ControllerRevisionList{}
	b.Must(b.API.List(ctx, list))
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	for _, revision := range list.Items {
		names = append(names, revision.Name)
	}
	return names
}

// state describes the pods and the status.
func (b bench) state() string {
	var out []string
	for _, pod := range b.pods() {
		out = append(out, fmt.Sprintf("%s %s %s %t", pod.Name, pod.UID, pod.ResourceVersion, pod.DeletionTimestamp != nil))
	}
	return strings.Join(out, ", ") + " " + b.read().ResourceVersion
}

// images returns the images of the pods that are not being deleted, by ordinal.
func (b bench) images() string {
	var out []string
	for _, pod := range b.pods() {
		if pod.DeletionTimestamp == nil {
			out = append(out, pod.Name[len("web-"):]+":"+pod.Spec.Containers[0].Image)
		}
	}
	return strings.Join(out, " ")
}

func withClaims(set *appsv1.StatefulSet) {
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"own": "label"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "log"}},
	}
}

func image(name string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n }
}
