// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/controltest"
)

var ctx = context.Background()

func newRS(name string, replicas int32) *appsv1.ReplicaSet {
	app := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app, Finalizers: []string{"test/running"}}},
		},
	}
}

// bench is a reconciler in a world of its own.
type bench struct {
	*controltest.World
	*reconciler
}

func newBench(t *testing.T, objs ...client.Object) bench {
	w := controltest.New(t, objs...)
	return bench{w, newReconciler(w.Env(), w.Seen)}
}

func (b bench) reconcile(name string) (ctrl.Result, error) {
	return b.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}})
}

// settle reconciles with a fresh cache until nothing changes.
func (b bench) settle(t *testing.T, name string) *appsv1.ReplicaSet {
	t.Helper()
	rs := &appsv1.ReplicaSet{}
	for range 10 {
		b.Sync()
		if _, err := b.reconcile(name); err != nil {
			t.Fatal(err)
		}
		before := rs.ResourceVersion
		b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, rs))
		if rs.ResourceVersion == before {
			return rs
		}
	}
	t.Fatal("it does not settle")
	return nil
}

func (b bench) pods() []*corev1.Pod {
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

func (b bench) active() []*corev1.Pod {
	return slices.DeleteFunc(b.pods(), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (b bench) ready(pod *corev1.Pod) {
	pod.Spec.NodeName = "node"
	b.Must(b.API.Update(ctx, pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.Clock.Now())}}
	b.Must(b.API.Status().Update(ctx, pod))
}

// stop lets a terminating pod end, as its node would.
func (b bench) stop(pod *corev1.Pod) {
	pod.Finalizers = nil
	b.Must(client.IgnoreNotFound(b.API.Update(ctx, pod)))
}

func TestItCreatesWhatIsMissingAndDeletesWhatIsTooMuch(t *testing.T) {
	b := newBench(t, newRS("web", 3))
	rs := b.settle(t, "web")
	want := appsv1.ReplicaSetStatus{Replicas: 3, FullyLabeledReplicas: 3, ObservedGeneration: 1, TerminatingReplicas: ptr.To[int32](0)}
	if diff := cmp.Diff(want, rs.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	events := b.Events()
	for i, pod := range b.active() {
		if !strings.HasPrefix(pod.Name, "web-") || !metav1.IsControlledBy(pod, rs) {
			t.Errorf("pod %s is owned by %v", pod.Name, pod.OwnerReferences)
		}
		if !slices.Contains(events, "Normal SuccessfulCreate Created pod: "+pod.Name) {
			t.Errorf("no event for pod %d in %q", i, events)
		}
		if i > 0 {
			b.ready(pod)
		}
	}
	keep := b.active()[1:]
	rs = b.settle(t, "web")
	rs.Spec.Replicas = ptr.To[int32](2)
	b.Must(b.API.Update(ctx, rs))
	rs = b.settle(t, "web")
	want = appsv1.ReplicaSetStatus{Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: 2, TerminatingReplicas: ptr.To[int32](1)}
	if diff := cmp.Diff(want, rs.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	for i, pod := range b.active() {
		if pod.Name != keep[i].Name {
			t.Errorf("%s is left; the pod that was not ready should have gone", pod.Name)
		}
	}
}

func TestReadyPodsBecomeAvailableAfterMinReadySeconds(t *testing.T) {
	rs := newRS("web", 2)
	rs.Spec.MinReadySeconds = 10
	b := newBench(t, rs)
	b.settle(t, "web")
	for _, pod := range b.active() {
		b.ready(pod)
		b.Clock.Step(4 * time.Second)
	}
	b.Sync()
	result, err := b.reconcile("web")
	b.Must(err)
	if result.RequeueAfter != 2*time.Second {
		t.Errorf("it looks again in %v; the first pod is available in 2s", result.RequeueAfter)
	}
	b.Clock.Step(2 * time.Second)
	if rs := b.settle(t, "web"); rs.Status.AvailableReplicas != 1 || rs.Status.ReadyReplicas != 2 {
		t.Errorf("status %+v", rs.Status)
	}
	b.Clock.Step(4 * time.Second)
	if rs := b.settle(t, "web"); rs.Status.AvailableReplicas != 2 {
		t.Errorf("status %+v", rs.Status)
	}
}

func TestARefusedCreateIsReportedAndMended(t *testing.T) {
	b := newBench(t, newRS("web", 50))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("exceeded quota: two"))
	var created atomic.Int64
	b.Refuse = func(verb string, _ client.Object) error {
		if verb == "create" && created.Add(1) > 2 {
			return quota
		}
		return nil
	}
	if _, err := b.reconcile("web"); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, so it would not try again", err)
	}
	if created.Load() != 3 {
		t.Errorf("%d creates were tried", created.Load())
	}
	rs := &appsv1.ReplicaSet{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "web"}, rs))
	want := []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		LastTransitionTime: rs.Status.Conditions[0].LastTransitionTime, Reason: "FailedCreate", Message: quota.Error()}}
	if diff := cmp.Diff(want, rs.Status.Conditions); diff != "" {
		t.Error(diff)
	}
	if events := b.Events(); !slices.Contains(events, "Warning FailedCreate Error creating: "+quota.Error()) {
		t.Errorf("events %q", events)
	}
	b.Refuse = nil
	if rs := b.settle(t, "web"); len(rs.Status.Conditions) != 0 || rs.Status.Replicas != 50 {
		t.Errorf("status %+v", rs.Status)
	}
}

func TestATerminatingNamespaceIsNoFailure(t *testing.T) {
	b := newBench(t, newRS("web", 3))
	b.Refuse = func(verb string, obj client.Object) error {
		if verb != "create" {
			return nil
		}
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("namespace ns is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	if rs := b.settle(t, "web"); len(rs.Status.Conditions) != 0 {
		t.Errorf("conditions %+v", rs.Status.Conditions)
	}
	if events := b.Events(); len(events) != 0 {
		t.Errorf("events %q", events)
	}
}

func TestADyingReplicaSetOnlyReports(t *testing.T) {
	rs := newRS("web", 3)
	rs.Finalizers = []string{"foregroundDeletion"}
	b := newBench(t, rs)
	b.Must(b.API.Delete(ctx, rs))
	if rs := b.settle(t, "web"); rs.Status.ObservedGeneration != 1 || len(b.pods()) != 0 {
		t.Errorf("status %+v, %d pods", rs.Status, len(b.pods()))
	}
}

func TestOverlappingSelectorsDoNotFight(t *testing.T) {
	b := newBench(t, newRS("one", 2), newRS("two", 3))
	for range 4 {
		for _, name := range []string{"one", "two"} {
			b.settle(t, name)
		}
	}
	owners := map[string]int{}
	for _, pod := range b.pods() {
		owners[metav1.GetControllerOf(pod).Name]++
	}
	if diff := cmp.Diff(map[string]int{"one": 2, "two": 3}, owners); diff != "" {
		t.Error(diff)
	}
}

func TestItReplacesAPodWhoseLabelsNoLongerMatch(t *testing.T) {
	b := newBench(t, newRS("web", 2))
	b.settle(t, "web")
	quarantined := b.active()[0]
	quarantined.Labels["app"] = "debug"
	b.Must(b.API.Update(ctx, quarantined))
	b.settle(t, "web")
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(quarantined), quarantined))
	if len(quarantined.OwnerReferences) != 0 || len(b.active()) != 3 {
		t.Errorf("owners %v, %d pods", quarantined.OwnerReferences, len(b.active()))
	}
	// Back in the fold it is one too many.
	quarantined.Labels["app"] = "web"
	b.Must(b.API.Update(ctx, quarantined))
	if rs := b.settle(t, "web"); rs.Status.Replicas != 2 {
		t.Errorf("status %+v", rs.Status)
	}
}

// A conflict says that the cache is behind. The event of the newer version
// wakes the controller; an error would only delay it and fill the log.
func TestAConflictOnStatusIsNotAnError(t *testing.T) {
	b := newBench(t, newRS("web", 1))
	rs := &appsv1.ReplicaSet{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "web"}, rs))
	rs.Labels = map[string]string{"changed": "by somebody"}
	b.Must(b.API.Update(ctx, rs))
	if _, err := b.reconcile("web"); err != nil {
		t.Error(err)
	}
	if rs := b.settle(t, "web"); rs.Status.Replicas != 1 {
		t.Errorf("status %+v", rs.Status)
	}
}

// TestRandomWalk lets a ReplicaSet live with a cache of any age while its size
// changes, pods start, fail, stop and are deleted by others, and writes fail.
// At no time may it create more than it should, and in the end it has what it
// asks for.
func TestRandomWalk(t *testing.T) {
	for seed := range int64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewSource(seed))
			size := int32(rng.Intn(6))
			b := newBench(t, newRS("web", size))
			flaky := false
			b.Refuse = func(verb string, _ client.Object) error {
				if flaky && rng.Intn(4) == 0 {
					return errors.New("the API is in a mood")
				}
				return nil
			}
			for step := range 60 {
				live := b.active()
				switch rng.Intn(8) {
				case 0:
					b.Sync()
				case 1:
					if len(live) > 0 {
						b.ready(live[rng.Intn(len(live))])
					}
				case 2:
					if len(live) > 0 {
						b.Must(b.API.Delete(ctx, live[rng.Intn(len(live))]))
					}
				case 3:
					for _, pod := range b.pods() {
						if pod.DeletionTimestamp != nil {
							b.stop(pod)
						}
					}
				case 4:
					size = int32(rng.Intn(6))
					rs := &appsv1.ReplicaSet{}
					b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "web"}, rs))
					rs.Spec.Replicas = &size
					b.Must(b.API.Update(ctx, rs))
					b.Sync()
				default:
					before := len(live)
					_, _ = b.reconcile("web")
					after := len(b.active())
					if after > before && after > int(size) {
						t.Fatalf("step %d: it went from %d to %d pods, but %d are wanted", step, before, after, size)
					}
				}
				flaky = rng.Intn(3) == 0
			}
			flaky = false
			b.settle(t, "web")
			if got := len(b.active()); got != int(size) {
				t.Errorf("%d pods in the end, %d wanted", got, size)
			}
		})
	}
}

// With nobody else about, however old the cache is, the number of pods never
// moves away from the number wanted.
func TestItNeverOvershootsOnAStaleCache(t *testing.T) {
	for seed := range int64(15) {
		rng := rand.New(rand.NewSource(seed))
		size := int32(5)
		b := newBench(t, newRS("web", size))
		distance := 5
		for step := range 40 {
			switch rng.Intn(10) {
			case 0:
				b.Sync()
			case 1:
				size = int32(rng.Intn(8))
				rs := &appsv1.ReplicaSet{}
				b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "web"}, rs))
				rs.Spec.Replicas = &size
				b.Must(b.API.Update(ctx, rs))
				b.Sync()
			case 2:
				for _, pod := range b.active() {
					if rng.Intn(2) == 0 {
						b.ready(pod) // changes who would be the next victim
					}
				}
			default:
				_, err := b.reconcile("web")
				b.Must(err)
				if got := len(b.active()); got != int(size) {
					t.Fatalf("seed %d step %d: %d pods, %d wanted, %d away before", seed, step, got, size, distance)
				}
			}
		}
	}
}
