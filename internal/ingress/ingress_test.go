// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/ingress/compile"
)

// run serves the objects of a fake API on loopback until the test ends.
func run(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	shared := informers.NewSharedInformerFactory(client, 0)
	part, err := New(Options{
		Client: client, Informers: shared, Events: record.NewFakeRecorder(100), Clock: clock.RealClock{},
		Address: netip.MustParseAddr("127.0.0.1"), Ports: compile.Ports{HTTP: unused(t), HTTPS: unused(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- part.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

func unused(t *testing.T) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Second) // less than retryInterval
	for err := check(); err != nil; err = check() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestClass: the class is the default unless another one is.
func TestClass(t *testing.T) {
	other := func(isDefault string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}},
			Spec:       networkingv1.IngressClassSpec{Controller: "example.com/other"},
		}
	}
	for _, c := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"alone", nil, "true"},
		{"another class", []runtime.Object{other("false")}, "true"},
		{"another default", []runtime.Object{other("true")}, ""},
		{"changed by the user", []runtime.Object{&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: ClassName}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := run(t, c.objects...)
			eventually(t, func() error {
				class, err := client.NetworkingV1().IngressClasses().Get(t.Context(), ClassName, metav1.GetOptions{})
				if err == nil && class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != c.want {
					t.Fatalf("default %q, want %q", class.Annotations[networkingv1.AnnotationIsDefaultIngressClass], c.want)
				}
				return err
			})
		})
	}
}

// TestStatus: an Ingress of the class has the address as its status, also after another client has changed it, and
// loses it with the class. One of another class is left alone.
func TestStatus(t *testing.T) {
	named := func(name, class string) *networkingv1.Ingress {
		return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}, Spec: networkingv1.IngressSpec{IngressClassName: ptr.To(class)}}
	}
	client := run(t, named("ours", ClassName), named("theirs", "other"))
	ingresses := client.NetworkingV1().Ingresses("ns")
	has := func(name, want string) {
		t.Helper()
		eventually(t, func() error {
			i, err := ingresses.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := ""
			for _, a := range i.Status.LoadBalancer.Ingress {
				got += a.IP
			}
			if got != want {
				return fmt.Errorf("%s has %q, want %q", name, got, want)
			}
			return nil
		})
	}
	update := func(name string, change func(*networkingv1.Ingress)) {
		t.Helper()
		i, err := ingresses.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec := i.Spec.DeepCopy()
		change(i)
		if !equality.Semantic.DeepEqual(spec, &i.Spec) {
			i.Generation++ // as the API server does
		}
		if _, err := ingresses.Update(t.Context(), i, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	has("ours", "127.0.0.1")
	update("ours", func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress[0].IP = "192.0.2.1" })
	has("ours", "127.0.0.1")
	update("ours", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("other") })
	has("ours", "")
	has("theirs", "")
	update("theirs", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To(ClassName) })
	has("theirs", "127.0.0.1")
}
