// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served.

package apiserver

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheServiceOfTheAPI(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	look := func(r *running, port int32) {
		t.Helper()
		service, err := r.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		if p := service.Spec.Ports[0]; service.Spec.ClusterIP != "10.96.0.1" || p.Name != "https" || p.Port != 443 || p.TargetPort.IntVal != port {
			t.Errorf("Service %s, ports %v", service.Spec.ClusterIP, service.Spec.Ports)
		}
		endpoints, err := r.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		want := []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}}}}
		if diff := cmp.Diff(want, endpoints.Subsets); diff != "" {
			t.Errorf("Endpoints (-want +got):\n%s", diff)
		}
		slice, err := r.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		if e := slice.Endpoints; len(e) != 1 || e[0].Addresses[0] != "192.0.2.1" || !*e[0].Conditions.Ready || *slice.Ports[0].Port != port {
			t.Errorf("EndpointSlice %v, ports %v", e, slice.Ports)
		}
		if diff := cmp.Diff(map[string]string{"10.96.0.1": "default/kubernetes"}, r.claims()); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	}
	first := startServer(t, dir, 6443, "10.96.0.0/16")
	look(first, 6443)

	// Objects that a user changed or deleted are restored.
	r := first
	r.must(r.CoreV1().Services("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}))
	r.must(r.CoreV1().Endpoints("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}))
	r.must(r.DiscoveryV1().EndpointSlices("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}))
	r.must(r.services.kubernetes.ensure(ctx))
	look(first, 6443)
	first.stop()

	// The objects follow the server to another port.
	look(startServer(t, dir, 7443, "10.96.0.0/16"), 7443)
}

// TestASecondRange: a server that is started with a range of the other IP family adds it. Services have addresses of it if
// they ask for them.
func TestASecondRange(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	create := func(r *running, name string, policy corev1.IPFamilyPolicy) ([]string, error) {
		service := newTestService(name, corev1.ServiceTypeClusterIP, corev1.ServicePort{Port: 80})
		service.Spec.IPFamilyPolicy = &policy
		created, err := r.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return created.Spec.ClusterIPs, nil
	}
	ranges := func(r *running) string {
		found, err := r.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
		r.must(err)
		return strings.Join(found.Spec.CIDRs, ",")
	}
	r := startServer(t, dir, 6443, "10.96.0.0/16")
	if _, err := create(r, "too-early", corev1.IPFamilyPolicyRequireDualStack); !apierrors.IsInvalid(err) {
		t.Errorf("without a second range: %v", err)
	}
	before, err := create(r, "before", corev1.IPFamilyPolicyPreferDualStack)
	r.must(err)
	if len(before) != 1 {
		t.Errorf("without a second range, a Service has the addresses %v", before)
	}
	r.stop()

	both := "10.96.0.0/16,fd00:96::/112"
	r = startServer(t, dir, 6443, both)
	if got := ranges(r); got != both {
		t.Errorf("the ServiceCIDR has %s, want %s", got, both)
	}
	after, err := create(r, "after", corev1.IPFamilyPolicyRequireDualStack)
	r.must(err)
	for i, p := range prefixes(both) {
		if len(after) != 2 || !p.Contains(netip.MustParseAddr(after[i])) {
			t.Errorf("a dual-stack Service has the addresses %v, want one of each of %s", after, both)
		}
	}
	r.stop()

	// Without the second range, it stays: addresses are allocated from it.
	if got := ranges(startServer(t, dir, 6443, "10.96.0.0/16")); got != both {
		t.Errorf("the ServiceCIDR has %s, want %s", got, both)
	}
}
