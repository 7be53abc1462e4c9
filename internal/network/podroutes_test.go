// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/test/netns"
)

// direct returns machines that want no tunnel.
func direct(addresses map[netip.Prefix]netip.Addr) map[netip.Prefix]hop {
	machines := map[netip.Prefix]hop{}
	for pods, address := range addresses {
		machines[pods] = hop{address: address}
	}
	return machines
}

// TestPodRoutes: the kernel has exactly the wanted routes, also after somebody has changed them, and another cluster's stay.
func TestPodRoutes(t *testing.T) {
	netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	one, two := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	a, b, c := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("10.244.3.0/24")
	other := newPodRoutes("kin-other")
	other.set(direct(map[netip.Prefix]netip.Addr{c: one}))
	r := newPodRoutes("kin-this")
	expect := func(when string, restored bool, wanted map[netip.Prefix]netip.Addr) {
		t.Helper()
		was, err := r.ensure()
		if err != nil || was != restored {
			t.Errorf("%s: restored %v, %v", when, was, err)
		}
		got := map[netip.Prefix]netip.Addr{}
		present, err := r.present()
		if err != nil {
			t.Fatal(err)
		}
		for prefix, route := range present {
			got[prefix] = gateway(route)
		}
		if diff := cmp.Diff(wanted, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	if _, err := other.ensure(); err != nil {
		t.Fatal(err)
	}
	set := func(wanted map[netip.Prefix]netip.Addr) map[netip.Prefix]netip.Addr {
		r.set(direct(wanted))
		return wanted
	}
	both := set(map[netip.Prefix]netip.Addr{a: one, b: two})
	expect("two nodes", true, both)
	expect("no change", false, both)
	if err := netlink.RouteDel(&netlink.Route{Dst: ipNet(a)}); err != nil {
		t.Fatal(err)
	}
	expect("somebody has deleted one", true, both)
	expect("a node has another address", true, set(map[netip.Prefix]netip.Addr{a: one, b: one}))
	expect("a node has left", false, set(map[netip.Prefix]netip.Addr{a: one}))
	if err := r.removeAll(); err != nil {
		t.Fatal(err)
	}
	expect("all are removed", false, map[netip.Prefix]netip.Addr{})
	if present, err := other.present(); err != nil || len(present) != 1 {
		t.Errorf("the other cluster's: %v, %v", present, err)
	}
}

// TestNodesApart: a node that shares no link has no route, and is reported once.
func TestNodesApart(t *testing.T) {
	netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 9)}); err != nil {
		t.Fatal(err)
	}
	r := newPodRoutes("kin-this")
	r.set(direct(map[netip.Prefix]netip.Addr{netip.MustParsePrefix("10.244.1.0/24"): netip.MustParseAddr("203.0.113.1")}))
	if _, err := r.ensure(); err == nil || !strings.Contains(err.Error(), "share no link") {
		t.Errorf("first: %v", err)
	}
	if _, err := r.ensure(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestMachineAddress: the address of a machine is not one of the bridge of its pods.
func TestMachineAddress(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00::/64")}
	for name, test := range map[string]struct {
		addresses []v1.NodeAddress
		ipv4      bool
		want      string
	}{
		"internal":            {[]v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "192.0.2.2"}, {Type: v1.NodeInternalIP, Address: "192.0.2.1"}}, true, "192.0.2.1"},
		"of the bridge":       {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.244.1.1"}, {Type: v1.NodeExternalIP, Address: "192.0.2.2"}}, true, "192.0.2.2"},
		"only of the bridge":  {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.244.1.1"}}, true, "invalid IP"},
		"of the other family": {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}, false, "invalid IP"},
		"of both":             {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "fd01::1"}}, false, "fd01::1"},
		"a name":              {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "x"}, {Type: v1.NodeHostName, Address: "192.0.2.1"}}, true, "invalid IP"},
		"none":                {nil, true, "invalid IP"},
	} {
		node := &v1.Node{Status: v1.NodeStatus{Addresses: test.addresses}}
		if got := machineAddress(node, pods, test.ipv4); got.String() != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}
