// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func newPod(i int, ready corev1.ConditionStatus) *corev1.Pod {
	ip := fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod-", i), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

type bench struct {
	*controltest.World
	*reconciler
}

func newBench(t *testing.T, objs ...client.Object) bench {
	w := controltest.New(t, append([]client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, newService()}, objs...)...)
	return bench{w, newReconciler(w.Env(), w.Seen)}
}

func (b bench) reconcile() {
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(err)
}

func (b bench) slices() []discoveryv1.EndpointSlice {
	found := &discoveryv1.EndpointSliceList{}
	b.Must(b.API.List(ctx, found))
	return found.Items
}

// addresses returns the addresses in all slices, and marks ready ones.
func (b bench) addresses() (out []string) {
	for _, slice := range b.slices() {
		for _, e := range slice.Endpoints {
			address := e.Addresses[0]
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				address += " ready"
			}
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return out
}

func TestSliceListsPodsOfService(t *testing.T) {
	stranger := newPod(9, corev1.ConditionTrue)
	stranger.Labels["app"] = "db"
	b := newBench(t, newPod(0, corev1.ConditionTrue), newPod(1, corev1.ConditionFalse), stranger)
	b.reconcile()
	if diff := cmp.Diff([]string{"10.1.0.1 ready", "10.1.0.2"}, b.addresses()); diff != "" {
		t.Error(diff)
	}
	slice := b.slices()[0]
	if ref := metav1.GetControllerOf(&slice); ref == nil || ref.Kind != "Service" || ref.Name != "web" {
		t.Errorf("owners %v", slice.OwnerReferences)
	}
	if got := slice.Labels[discoveryv1.LabelManagedBy]; got != "endpointslice-controller.k8s.io" || slice.Labels[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("labels %v", slice.Labels)
	}
	if got := backends.ServiceOfSlice(managedBy)(ctx, &slice); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("the slice wakes %v", got)
	}
	b.Sync()
	if got := b.servicesOf(ctx, newPod(0, corev1.ConditionTrue)); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("a pod wakes %v", got)
	}
	if got := b.servicesOf(ctx, stranger); len(got) != 0 {
		t.Errorf("a pod that no Service selects wakes %v", got)
	}
}

func TestServicesWithoutPodsOfTheirOwn(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"no selector":  func(s *corev1.Service) { s.Spec.Selector = nil },
		"ExternalName": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
	} {
		b := newBench(t, newPod(0, corev1.ConditionTrue))
		service := &corev1.Service{}
		b.Must(b.API.Get(ctx, key, service))
		change(service)
		b.Must(b.API.Update(ctx, service))
		b.Sync()
		b.reconcile()
		if got := b.slices(); len(got) != 0 {
			t.Errorf("%s: %d slices", name, len(got))
		}
	}
}

// With a stale cache, each address is listed only once. In the end the slices list exactly the
// existing pods, and as few slices as possible exist.
func TestSlicesOnAStaleCache(t *testing.T) {
	for seed := range int64(2) {
		rng := rand.New(rand.NewSource(seed))
		b := newBench(t)
		live := map[int]*corev1.Pod{}
		for step := range 40 {
			switch rng.Intn(4) {
			case 0:
				b.Sync()
			case 1:
				for range 25 {
					i := len(live) + 1000*step
					live[i] = newPod(i, corev1.ConditionTrue)
					b.Must(b.API.Create(ctx, live[i]))
				}
			case 2:
				for i, pod := range live {
					if rng.Intn(2) == 0 {
						b.Must(b.API.Delete(ctx, pod))
						delete(live, i)
					}
				}
			default:
				b.reconcile()
			}
			got := b.addresses()
			if unique := slices.Compact(slices.Clone(got)); len(unique) != len(got) {
				t.Fatalf("seed %d step %d: %d addresses, %d of them different", seed, step, len(got), len(unique))
			}
		}
		b.Sync()
		b.reconcile()
		if got := b.addresses(); len(got) != len(live) {
			t.Errorf("seed %d: %d addresses of %d pods", seed, len(got), len(live))
		}
		for _, slice := range b.slices() {
			if len(slice.Endpoints) > maxEndpoints {
				t.Errorf("seed %d: a slice has %d endpoints", seed, len(slice.Endpoints))
			}
		}
	}
}

func TestFailureIsReported(t *testing.T) {
	b := newBench(t, newPod(0, corev1.ConditionTrue))
	b.Refuse = func(string, client.Object) error { return errors.New("no") }
	if _, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error, so the request is not retried")
	}
	if events := b.Events(); len(events) != 1 {
		t.Errorf("events %q", events)
	}
}
