// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
)

func claimedBy(owner *corev1.Service, ip, revision string) *networkingv1.IPAddress {
	claim := claimOf(owner, netip.MustParseAddr(ip))
	claim.UID, claim.ResourceVersion = types.UID(ip), revision
	return claim
}

func nodePortService(name, ip string, port int32) *corev1.Service {
	s := service(name, ip)
	s.Spec.Type = corev1.ServiceTypeNodePort
	s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: port}}
	return s
}

func TestRepair(t *testing.T) {
	ctx := context.Background()
	whole, missing := nodePortService("whole", "10.1.0.1", 30001), nodePortService("missing", "10.1.0.2", 30002)
	for name, tc := range map[string]struct {
		settled uint64
		// claims after the first and the second check
		first, second []string
		ports, later  []int32
	}{
		"shared store": {0,
			[]string{"10.1.0.1", "10.1.0.2", "10.1.0.8", "10.1.0.9"}, []string{"10.1.0.1", "10.1.0.2"},
			[]int32{30001, 30002, 30009}, []int32{30001, 30002}},
		"exclusive store": {5,
			[]string{"10.1.0.1", "10.1.0.2", "10.1.0.9"}, []string{"10.1.0.1", "10.1.0.2"},
			[]int32{30001, 30002}, []int32{30001, 30002}},
	} {
		t.Run(name, func(t *testing.T) {
			a, client := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue), whole, missing,
				claimedBy(whole, "10.1.0.1", "3"),
				claimedBy(service("gone"), "10.1.0.8", "4"),                                // written before the server started, and unused
				claimedBy(service("going"), "10.1.0.9", "9"),                               // written after it started
				&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.200"}}) // not managed by Kindred
			p := newPorts()
			if _, err := p.Claim([]int32{30001, 30009}, false); err != nil {
				t.Fatal(err)
			}
			r := NewRepair(client.CoreV1(), a, p, discard())
			look := func(addresses []string, ports []int32) {
				t.Helper()
				var got []string
				all, err := client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{LabelSelector: networkingv1.LabelManagedBy + "=" + manager})
				if err != nil {
					t.Fatal(err)
				}
				for _, claim := range all.Items {
					got = append(got, claim.Name)
				}
				if diff := cmp.Diff(addresses, got); diff != "" {
					t.Errorf("addresses (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(ports, claimedPorts(t, p)); diff != "" {
					t.Errorf("ports (-want +got):\n%s", diff)
				}
				if claims(t, client) != len(got)+1 {
					t.Error("another owner's claim was removed")
				}
			}
			if err := r.Start(ctx, tc.settled); err != nil {
				t.Fatal(err)
			}
			look(tc.first, tc.ports)
			if err := r.Once(ctx); err != nil {
				t.Fatal(err)
			}
			look(tc.second, tc.later)
		})
	}
}

// TestRepairKeepsClaimsOfNewServices checks that a claim stays that is unused at one check and used
// at the next.
func TestRepairKeepsClaimsOfNewServices(t *testing.T) {
	ctx := context.Background()
	late := nodePortService("late", "10.1.0.1", 30001)
	a, client := newAddresses(serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue), claimedBy(late, "10.1.0.1", "3"))
	p := newPorts()
	if _, err := p.Claim([]int32{30001}, false); err != nil {
		t.Fatal(err)
	}
	r := NewRepair(client.CoreV1(), a, p, discard())
	if err := r.Start(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("ns").Create(ctx, late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.Once(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if claims(t, client) != 1 || len(claimedPorts(t, p)) != 1 {
		t.Error("released the claims of a Service")
	}
}

// TestRepairReportsTwoOwners checks that two Services with one address are an error, and that the
// claim stays with its owner.
func TestRepairReportsTwoOwners(t *testing.T) {
	one, two := service("one", "10.1.0.1"), service("two", "10.1.0.1")
	a, client := newAddresses(one, two, claimedBy(one, "10.1.0.1", "3"))
	err := NewRepair(client.CoreV1(), a, newPorts(), discard()).Start(context.Background(), 0)
	if want := "the ClusterIP 10.1.0.1 of Service ns/two is claimed for services ns/one; recreate one of the two"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func discard() Recorders {
	return Recorders{Addresses: events.NewFakeRecorder(100), Ports: events.NewFakeRecorder(100)}
}

// TestRepairEvents checks the events that repair records on Services.
func TestRepairEvents(t *testing.T) {
	cidr := serviceRange("a", "10.1.0.0/24", metav1.ConditionTrue)
	whole := nodePortService("whole", "10.1.0.1", 30001)
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    []string
	}{
		"consistent": {[]runtime.Object{claimedBy(whole, "10.1.0.1", "3")}, nil},
		"not claimed": {[]runtime.Object{claimedBy(whole, "10.1.0.1", "3"), nodePortService("x", "10.1.0.2", 30002)}, []string{
			"Warning ClusterIPNotAllocated Cluster IP [IPv4]: 10.1.0.2 is not allocated; repairing",
			"Warning PortNotAllocated Port 30002 is not allocated; repairing"}},
		"shared": {[]runtime.Object{claimedBy(whole, "10.1.0.1", "3"), nodePortService("x", "10.1.0.1", 30001)}, []string{
			"Warning ClusterIPAlreadyAllocated Cluster IP [IPv4]:10.1.0.1 was assigned to multiple services; please recreate service",
			"Warning PortAlreadyAllocated Port 30001 was assigned to multiple services; please recreate service"}},
		"claimed for another Service": {[]runtime.Object{claimedBy(service("gone"), "10.1.0.1", "9")}, []string{
			"Warning ClusterIPNotAllocated the ClusterIP [IPv4]: 10.1.0.1 for Service ns/whole has a wrong reference; repairing"}},
		"out of range": {[]runtime.Object{claimedBy(whole, "10.1.0.1", "3"), nodePortService("x", "10.2.0.1", 99), claimedBy(service("x"), "10.2.0.1", "3")}, []string{
			"Warning ClusterIPOutOfRange Cluster IP [IPv4]: 10.2.0.1 is not within any configured Service CIDR; please recreate service",
			"Warning PortOutOfRange Port 99 is not within the port range 30000-32767; please recreate service"}},
		"unused claim": {[]runtime.Object{claimedBy(whole, "10.1.0.1", "3"), claimedBy(service("gone"), "10.1.0.9", "3")}, []string{
			"Warning IPAddressNotAllocated IPAddress: 10.1.0.9 for Service ns/gone appears to have leaked: cleaning up"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, client := newAddresses(append(tc.objects, cidr, whole)...)
			p := newPorts()
			if _, err := p.Claim([]int32{30001}, false); err != nil {
				t.Fatal(err)
			}
			addresses, ports := events.NewFakeRecorder(10), events.NewFakeRecorder(10)
			_ = NewRepair(client.CoreV1(), a, p, Recorders{Addresses: addresses, Ports: ports}).Start(t.Context(), 5)
			close(addresses.Events)
			close(ports.Events)
			var got []string
			for e := range addresses.Events {
				got = append(got, e)
			}
			for e := range ports.Events {
				got = append(got, e)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30003,
		ClusterIPs: []string{"10.001.0.1", "fd00::1"},
		Ports:      []corev1.ServicePort{{NodePort: 30002}, {NodePort: 30002}, {NodePort: 0}, {NodePort: 30001}},
	}}
	if got := HeldAddresses(s); len(got) != 2 || got[0].String() != "10.1.0.1" || got[1].String() != "fd00::1" {
		t.Errorf("addresses %v", got)
	}
	if got := HeldPorts(s); !cmp.Equal(got, []int32{30001, 30002, 30003}) {
		t.Errorf("ports %v", got)
	}
	s.Spec.Type, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, []string{corev1.ClusterIPNone}
	if HeldAddresses(s) != nil || HeldPorts(s) != nil {
		t.Error("a headless Service has addresses or ports")
	}
}
