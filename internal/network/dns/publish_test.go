// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

var published = Published{
	ClusterIP: addr("10.96.0.10"), Node: "one", Endpoint: netip.MustParseAddrPort("10.244.1.1:5353"),
}

// newPublisher returns a publisher of a cluster that has the objects, with running informers.
func newPublisher(t *testing.T, objects ...metav1.Object) (*Publisher, kubernetes.Interface) {
	t.Helper()
	client := fake.NewClientset()
	for _, object := range objects {
		var err error
		switch o := object.(type) {
		case *corev1.Service:
			_, err = client.CoreV1().Services(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *discoveryv1.EndpointSlice:
			_, err = client.DiscoveryV1().EndpointSlices(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	p := NewPublisher(client, shared, clock.RealClock{})
	ctx, stop := context.WithCancel(context.Background())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() { stop(); shared.Shutdown() })
	return p, client
}

// run runs a publisher until the test ends.
func run(t *testing.T, p *Publisher, want Published) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, want) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// eventually waits until a condition on the stored Service and the slice of node one holds; either is nil
// if it does not exist.
func eventually(t *testing.T, client kubernetes.Interface, what string, ok func(*corev1.Service, *discoveryv1.EndpointSlice) bool) {
	t.Helper()
	var service *corev1.Service
	var slice *discoveryv1.EndpointSlice
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		if service, err = client.CoreV1().Services(Namespace).Get(ctx, ServiceName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			service = nil
		}
		if slice, err = client.DiscoveryV1().EndpointSlices(Namespace).Get(ctx, "kube-dns-one", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			slice = nil
		}
		return ok(service, slice), nil
	})
	if err != nil {
		t.Fatalf("%s: Service %v, slice %v", what, service, slice)
	}
}

// both reports whether Service and slice are as they should be.
func both(service *corev1.Service, slice *discoveryv1.EndpointSlice) bool {
	return service != nil && slice != nil && isOurs(service) && samePorts(service.Spec.Ports, published.service().Spec.Ports) &&
		sameSlice(slice, published.slice(service))
}

func TestPublish(t *testing.T) {
	p, client := newPublisher(t)
	if got := p.ClusterIP(addr("10.96.0.10")); got != addr("10.96.0.10") {
		t.Errorf("address %v before the Service exists", got)
	}
	if err := p.Ensure(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	eventually(t, client, "published once", both)
	run(t, p, published)
	ctx, services, slices := t.Context(), client.CoreV1().Services(Namespace), client.DiscoveryV1().EndpointSlices(Namespace)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(slices.Delete(ctx, "kube-dns-one", metav1.DeleteOptions{}))
	eventually(t, client, "after the slice is deleted", both)
	must(services.Delete(ctx, ServiceName, metav1.DeleteOptions{}))
	eventually(t, client, "after the Service is deleted", both)

	slice, err := slices.Get(ctx, "kube-dns-one", metav1.GetOptions{})
	must(err)
	slice.Endpoints = nil
	_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	must(err)
	eventually(t, client, "after the slice is changed", both)
	service, err := services.Get(ctx, ServiceName, metav1.GetOptions{})
	must(err)
	service.Spec.Ports = service.Spec.Ports[:1]
	_, err = services.Update(ctx, service, metav1.UpdateOptions{})
	must(err)
	eventually(t, client, "after the Service is changed", both)

	service, err = services.Get(ctx, ServiceName, metav1.GetOptions{})
	must(err)
	service.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	_, err = services.Update(ctx, service, metav1.UpdateOptions{})
	must(err)
	eventually(t, client, "after other DNS servers are installed", func(s *corev1.Service, slice *discoveryv1.EndpointSlice) bool {
		return s != nil && slice == nil
	})
}

// TestPublished: the objects are those that tools expect of a DNS add-on.
func TestPublished(t *testing.T) {
	service := published.service()
	service.UID = "u"
	slice := published.slice(service)
	if diff := cmp.Diff(map[string]string{
		"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS", "app.kubernetes.io/managed-by": "dns.kindred.dev",
	}, service.Labels); diff != "" {
		t.Error(diff)
	}
	if service.Spec.ClusterIP != "10.96.0.10" || len(service.Spec.Selector) > 0 || slice.AddressType != discoveryv1.AddressTypeIPv4 {
		t.Error(service.Spec, slice.AddressType)
	}
	for i, port := range service.Spec.Ports {
		if port.Port != 53 || *slice.Ports[i].Port != 5353 || *slice.Ports[i].Name != port.Name || *slice.Ports[i].Protocol != port.Protocol {
			t.Errorf("port %v of the Service, %v of the slice", port, slice.Ports[i])
		}
	}
	six := published
	six.Endpoint = netip.MustParseAddrPort("[fd00::1]:53")
	if got := six.slice(service).AddressType; got != discoveryv1.AddressTypeIPv6 {
		t.Errorf("address type %s", got)
	}
}

// TestOthersService: a Service of another client stays as it is, and its address is that of the cluster's DNS.
func TestOthersService(t *testing.T) {
	theirs := service(Namespace, ServiceName, []string{"10.96.0.77"}, port("dns", corev1.ProtocolUDP, 53))
	p, client := newPublisher(t, theirs)
	if err := p.Ensure(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	if err := p.Withdraw(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Services(Namespace).Get(t.Context(), ServiceName, metav1.GetOptions{})
	if err != nil || !slices.Equal(got.Spec.ClusterIPs, []string{"10.96.0.77"}) || len(got.Labels) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	list, err := client.DiscoveryV1().EndpointSlices(Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if got := p.ClusterIP(addr("10.96.0.10")); got != addr("10.96.0.77") {
		t.Errorf("address %v", got)
	}
}

func TestWithdraw(t *testing.T) {
	ours := published.service()
	p, client := newPublisher(t, ours, published.slice(ours))
	if err := p.Withdraw(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	eventually(t, client, "withdrawn", func(s *corev1.Service, slice *discoveryv1.EndpointSlice) bool { return s == nil && slice == nil })
	if err := p.Withdraw(t.Context(), "one"); err != nil {
		t.Errorf("twice: %v", err)
	}
}
