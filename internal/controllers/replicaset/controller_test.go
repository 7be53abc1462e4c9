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
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func (b bench) ready(pod *corev1.Pod) {
	pod.Spec.NodeName = "node"
	b.Must(b.API.Update(ctx, pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.Clock.Now())}}
	b.Must(b.API.Status().Update(ctx, pod))
}

// stop ends a terminating pod, as its node would.
func (b bench) stop(pod *corev1.Pod) {
	pod.Finalizers = nil
	b.Must(client.IgnoreNotFound(b.API.Update(ctx, pod)))
}

func TestScale(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 3))
		// Only ReplicaSets count terminating pods.
		terminating := func(n int32) *int32 {
			if !kind.countsTerminating {
				return nil
			}
			return &n
		}
		rs := b.settle(t, "web")
		want := appsv1.ReplicaSetStatus{Replicas: 3, FullyLabeledReplicas: 3, ObservedGeneration: 1, TerminatingReplicas: terminating(0)}
		if diff := cmp.Diff(want, rs.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		events := b.Events()
		for i, pod := range b.active() {
			owner := metav1.NewControllerRef(rs, kind.gvk)
			if diff := cmp.Diff([]metav1.OwnerReference{*owner}, pod.OwnerReferences); diff != "" || !strings.HasPrefix(pod.Name, "web-") {
				t.Errorf("pod %s and its owners (-want +got):\n%s", pod.Name, diff)
			}
			if !slices.Contains(events, "Normal SuccessfulCreate Created pod: "+pod.Name) {
				t.Errorf("no event for pod %d in %q", i, events)
			}
			if i > 0 {
				b.ready(pod)
			}
		}
		keep := b.active()[1:]
		b.settle(t, "web")
		b.edit("web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](2) })
		rs = b.settle(t, "web")
		want = appsv1.ReplicaSetStatus{Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: 2, TerminatingReplicas: terminating(1)}
		if diff := cmp.Diff(want, rs.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		for i, pod := range b.active() {
			if pod.Name != keep[i].Name {
				t.Errorf("%s is left; the pod that was not ready should have been deleted", pod.Name)
			}
		}
	})
}

func TestReadyPodsBecomeAvailableAfterMinReadySeconds(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		rs := newRS("web", 2)
		rs.Spec.MinReadySeconds = 10
		b := newBench(t, kind, rs)
		b.settle(t, "web")
		for _, pod := range b.active() {
			b.ready(pod)
			b.Clock.Step(4 * time.Second)
		}
		b.Sync()
		result, err := b.reconcile("web")
		b.Must(err)
		if result.RequeueAfter != 2*time.Second {
			t.Errorf("requeued after %v; the first pod is available in 2s", result.RequeueAfter)
		}
		b.Clock.Step(2 * time.Second)
		if rs := b.settle(t, "web"); rs.Status.AvailableReplicas != 1 || rs.Status.ReadyReplicas != 2 {
			t.Errorf("status %+v", rs.Status)
		}
		b.Clock.Step(4 * time.Second)
		if rs := b.settle(t, "web"); rs.Status.AvailableReplicas != 2 {
			t.Errorf("status %+v", rs.Status)
		}
	})
}

// A pod on a node with other pods of its owner is deleted before one that is alone, whatever the
// later rules decide.
func TestDeletesFromTheFullerNode(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		for alone := range 3 {
			b := newBench(t, kind, newRS("web", 3))
			b.settle(t, "web")
			for i, pod := range b.active() {
				b.ready(pod)
				if i == alone {
					pod.Spec.NodeName = "other"
					b.Must(b.API.Update(ctx, pod))
				}
			}
			b.edit("web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](2) })
			b.settle(t, "web")
			left := map[string]int{}
			for _, pod := range b.active() {
				left[pod.Spec.NodeName]++
			}
			if diff := cmp.Diff(map[string]int{"node": 1, "other": 1}, left); diff != "" {
				t.Errorf("pods left by node, pod %d alone on its own (-want +got):\n%s", alone, diff)
			}
		}
	})
}

func TestRefusedCreateIsReported(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 50))
		quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("exceeded quota: two"))
		var created atomic.Int64
		b.Refuse = func(verb string, _ client.Object) error {
			if verb == "create" && created.Add(1) > 2 {
				return quota
			}
			return nil
		}
		if _, err := b.reconcile("web"); !apierrors.IsForbidden(err) {
			t.Errorf("error %v, so the request is not retried", err)
		}
		if created.Load() != 3 {
			t.Errorf("%d creates were tried", created.Load())
		}
		rs := b.read("web")
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
	})
}

func TestTerminatingNamespaceIsNoFailure(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 3))
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
	})
}

func TestDeletedOwnerUpdatesOnlyStatus(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		rs := newRS("web", 3)
		rs.Finalizers = []string{"foregroundDeletion"}
		b := newBench(t, kind, rs)
		b.Must(b.API.Delete(ctx, kind.object(rs)))
		if rs := b.settle(t, "web"); rs.Status.ObservedGeneration != 1 || len(b.pods()) != 0 {
			t.Errorf("status %+v, %d pods", rs.Status, len(b.pods()))
		}
	})
}

func TestOverlappingSelectorsDoNotFight(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("one", 2), newRS("two", 3))
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
	})
}

func TestRelabelledPodIsReplaced(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 2))
		b.settle(t, "web")
		quarantined := b.active()[0]
		quarantined.Labels["app"] = "debug"
		b.Must(b.API.Update(ctx, quarantined))
		b.settle(t, "web")
		b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(quarantined), quarantined))
		if len(quarantined.OwnerReferences) != 0 || len(b.active()) != 3 {
			t.Errorf("owners %v, %d pods", quarantined.OwnerReferences, len(b.active()))
		}
		// With its label back, the pod is surplus.
		quarantined.Labels["app"] = "web"
		b.Must(b.API.Update(ctx, quarantined))
		if rs := b.settle(t, "web"); rs.Status.Replicas != 2 {
			t.Errorf("status %+v", rs.Status)
		}
	})
}

// A conflict means that the cache is stale. The event of the newer version wakes the controller; an
// error would only add a delay and a log message.
func TestStatusConflictIsNoError(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 1))
		b.edit("web", func(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{"changed": "by a user"} })
		if _, err := b.reconcile("web"); err != nil {
			t.Error(err)
		}
		if rs := b.settle(t, "web"); rs.Status.Replicas != 1 {
			t.Errorf("status %+v", rs.Status)
		}
	})
}

// TestRandomWalk runs an owner with a cache of random age while its size changes, pods start, fail,
// stop and are deleted by other clients, and writes fail. It must never create too many pods, and
// must reach its size in the end.
func TestRandomWalk(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		for seed := range int64(15) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				rng := rand.New(rand.NewSource(seed))
				size := int32(rng.Intn(6))
				b := newBench(t, kind, newRS("web", size))
				flaky := false
				b.Refuse = func(verb string, _ client.Object) error {
					if flaky && rng.Intn(4) == 0 {
						return errors.New("random failure")
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
						b.edit("web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To(size) })
						b.Sync()
					default:
						before := len(live)
						_, _ = b.reconcile("web")
						after := len(b.active())
						if after > before && after > int(size) {
							t.Fatalf("step %d: from %d to %d pods, want %d", step, before, after, size)
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
	})
}

// Without other clients, the number of pods never moves away from the wanted number, however old the
// cache is.
func TestStaleCacheNeverOvershoots(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		for seed := range int64(15) {
			rng := rand.New(rand.NewSource(seed))
			size := int32(5)
			b := newBench(t, kind, newRS("web", size))
			distance := 5
			for step := range 40 {
				switch rng.Intn(10) {
				case 0:
					b.Sync()
				case 1:
					size = int32(rng.Intn(8))
					b.edit("web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To(size) })
					b.Sync()
				case 2:
					for _, pod := range b.active() {
						if rng.Intn(2) == 0 {
							b.ready(pod) // changes the next victim
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
	})
}

// TestDeletedOwner: nothing is created for an object that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	forKinds(t, func(t *testing.T, kind tested) {
		b := newBench(t, kind, newRS("web", 3))
		b.Must(b.API.Delete(ctx, kind.object(newRS("web", 3))))
		if _, err := b.reconcile("web"); err != nil {
			b.Must(client.IgnoreNotFound(err)) // the status
		}
		if n := len(b.pods()); n != 0 {
			t.Errorf("%d pods", n)
		}
	})
}
