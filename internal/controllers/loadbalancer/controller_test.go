// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

type bed struct {
	*controltest.World
	*testing.T
	r *reconciler
}

func newBed(t *testing.T, options Options) *bed {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "real"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.244.0.1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.7"}}},
	}
	simulated := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "simulated", Labels: map[string]string{"sim": ""}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
	}
	options.Simulated = "sim"
	w := controltest.New(t, node, simulated)
	return &bed{w, t, newReconciler(w.Env(), options)}
}

func (b *bed) create(name string, change func(*corev1.Service)) {
	b.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: v4, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if change != nil {
		change(svc)
	}
	b.Must(b.API.Create(context.Background(), svc))
	b.reconcile(name)
}

func (b *bed) reconcile(name string) {
	b.Helper()
	b.Sync()
	if _, err := b.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key(name)}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) get(name string) *corev1.Service {
	b.Helper()
	svc := &corev1.Service{}
	b.Must(b.API.Get(context.Background(), key(name), svc))
	return svc
}

// wantAddress compares a Service's address, which is "" for none.
func (b *bed) wantAddress(name, want string) {
	b.Helper()
	var got []string
	for _, in := range b.get(name).Status.LoadBalancer.Ingress {
		got = append(got, in.IP)
		if ptr.Deref(in.IPMode, "") != corev1.LoadBalancerIPModeVIP {
			b.Errorf("%s: ipMode %v", name, in.IPMode)
		}
	}
	if strings.Join(got, " ") != want {
		b.Errorf("%s: addresses %v, want %q", name, got, want)
	}
}

func (b *bed) wantEvents(want ...string) {
	b.Helper()
	if got := b.Events(); !slices.EqualFunc(got, want, strings.HasPrefix) {
		b.Errorf("events %q, want %q", got, want)
	}
}

func TestNodeAddress(t *testing.T) {
	b := newBed(t, Options{})
	b.create("a", nil)
	b.wantAddress("a", "192.0.2.7")
	b.wantEvents("Normal EnsuringLoadBalancer", "Normal EnsuredLoadBalancer")
	b.reconcile("a")
	b.wantEvents()

	b.create("b", nil)
	b.wantAddress("b", "")
	b.wantEvents("Warning SyncLoadBalancerFailed Error syncing load balancer: port 80/TCP of address 192.0.2.7 is in use by the Service ns/a")
	b.reconcile("b")
	b.wantEvents() // the same reason is reported once

	a := b.get("a")
	a.Spec.Type = corev1.ServiceTypeClusterIP
	b.Must(b.API.Update(context.Background(), a))
	b.reconcile("a")
	b.wantAddress("a", "")
	b.wantAddress("b", "192.0.2.7") // at once, with no event of its own
	if f := b.get("a").Finalizers; len(f) > 0 {
		t.Errorf("finalizers left: %v", f)
	}
	b.wantEvents("Normal DeletingLoadBalancer", "Normal DeletedLoadBalancer", "Normal EnsuringLoadBalancer", "Normal EnsuredLoadBalancer")

	if f := b.get("b").Finalizers; !slices.Equal(f, []string{finalizer}) {
		t.Errorf("finalizers %v", f)
	}
	b.Must(b.API.Delete(context.Background(), b.get("b")))
	b.reconcile("b")
	if err := b.API.Get(context.Background(), key("b"), &corev1.Service{}); err == nil {
		t.Error("the Service is still there")
	}
}

func TestClass(t *testing.T) {
	b := newBed(t, Options{})
	b.create("theirs", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass = ptr.To("example.com/lb")
		s.Finalizers = []string{finalizer}
	})
	b.wantAddress("theirs", "")
	if len(b.get("theirs").Finalizers) == 0 {
		t.Error("another controller's finalizer was removed")
	}
	b.create("ours", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("kindred.dev/lb") })
	b.wantAddress("ours", "192.0.2.7")
}

func TestPool(t *testing.T) {
	options := Options{Pools: []netip.Prefix{netip.MustParsePrefix("198.51.100.8/31")}}
	b := newBed(t, options)
	b.create("a", nil)
	b.create("b", nil)
	b.create("c", nil)
	b.wantAddress("a", "198.51.100.8")
	b.wantAddress("b", "198.51.100.9")
	b.wantAddress("c", "")
	// A new process keeps what the statuses have.
	b.Sync()
	b.r = newReconciler(b.Env(), b.r.Options)
	b.reconcile("c")
	b.wantAddress("c", "")
	b.Must(b.API.Delete(context.Background(), b.get("a")))
	b.reconcile("a")
	b.wantAddress("b", "198.51.100.9")
	b.wantAddress("c", "198.51.100.8")
}

func TestNodeAddressChanges(t *testing.T) {
	b := newBed(t, Options{})
	b.create("a", nil)
	node := &corev1.Node{}
	b.Must(b.API.Get(context.Background(), types.NamespacedName{Name: "real"}, node))
	node.Status.Addresses[1].Address = "192.0.2.8"
	b.Must(b.API.Status().Update(context.Background(), node))
	b.Events()
	b.reconcile("a")
	b.wantAddress("a", "192.0.2.8")
	b.wantEvents("Normal UpdatedLoadBalancer")
}
