// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/test/netns"
)

// TestPacketsToUnroutedServicesAreRejected sends packets of the machine and of a pod to an address of Services on a
// machine with a default gateway.
func TestPacketsToUnroutedServicesAreRejected(t *testing.T) {
	pods := netip.MustParsePrefix("10.245.7.0/24")
	bridge := netns.NewBridge(t, "kin-reject", pods)
	pod := bridge.Pod(t)
	netns.NewMachine(t, "kin-gw", netip.MustParsePrefix("192.0.2.1/24"))
	link, err := netlink.LinkByName("kin-gw")
	if err != nil {
		t.Fatal(err)
	}
	gateway := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteAdd(gateway); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.RouteDel(gateway); _ = removeRejects() })

	first, second := netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("10.98.0.0/16")
	rejected := func(prefix netip.Prefix, want bool) {
		t.Helper()
		address := netip.AddrPortFrom(prefix.Addr().Next(), 80).String()
		var machine *netns.Pod
		_, err := machine.Dial(t, "tcp", address, 300*time.Millisecond)
		if got := errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH); got != want {
			t.Errorf("the machine's packet to %s: %v; rejected should be %v", address, err, want)
		}
		if _, err = pod.Dial(t, "tcp", address, 300*time.Millisecond); want != (errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)) {
			t.Errorf("a pod's packet to %s: %v; rejected should be %v", address, err, want)
		}
	}
	rejected(first, false)
	var r rejects
	for range 2 { // as after a restart
		r = rejects{}
		if err := r.ensure([]netip.Prefix{first}); err != nil {
			t.Fatal(err)
		}
	}
	rejected(first, true)
	rejected(second, false)
	if err := r.ensure([]netip.Prefix{second}); err != nil {
		t.Fatal(err)
	}
	rejected(first, false)
	rejected(second, true)

	// The route to the interface of Services has precedence, and does not count as one of another cluster.
	n := &Network{routes: routes{link: servicesLink(bridge.Name), bridge: bridge.Name, pods: []netip.Prefix{pods}}, unmended: unmended{}}
	t.Cleanup(func() { _ = n.routes.remove() })
	if taken, err := n.Taken(second); taken || err != nil {
		t.Errorf("taken %v, error %v", taken, err)
	}
	n.ranges = []netip.Prefix{second}
	if _, err := n.ensureRoutes(); err != nil {
		t.Fatal(err)
	}
	found, err := netlink.RouteGet(second.Addr().Next().AsSlice())
	if err != nil || len(found) != 1 || found[0].Src.String() != "10.245.7.1" {
		t.Errorf("route %v, error %v", found, err)
	}
	if err := n.routes.remove(); err != nil {
		t.Fatal(err)
	}
	rejected(second, true)
	if err := removeRejects(); err != nil {
		t.Fatal(err)
	}
	rejected(second, false)
}

// TestKeepRejecting adds a ServiceCIDR on a node that does not route Services.
func TestKeepRejecting(t *testing.T) {
	netns.Required(t)
	t.Cleanup(func() { _ = removeRejects() })
	c := clocktesting.NewFakeClock(time.Now())
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	cidrs := f.Networking().V1().ServiceCIDRs()
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- KeepRejecting(ctx, cidrs, c) }()
	cidr := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/16"}}}
	cidr.Name = "added"
	if err := cidrs.Informer().GetStore().Add(cidr); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if c.HasWaiters() {
			c.Step(rejectInterval)
		}
		_, err := netlink.RouteGet(netip.MustParseAddr("10.99.0.1").AsSlice())
		if errors.Is(err, unix.EHOSTUNREACH) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not rejected: %v", err)
		}
	}
}
