// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/kindred-project/kindred/test/netns"
)

// TestRefusedRouteFailsAlone: the machine does not have the source address of its IPv4 route, which the kernel refuses.
func TestRefusedRouteFailsAlone(t *testing.T) {
	pods := netip.MustParsePrefix("fd00:244::/64")
	bridge := netns.NewBridge(t, "kin-routes", pods)
	refused, routed := netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd00:97::/112")
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for name, cidrs := range map[string][]string{"one": {refused.String(), routed.String()}, "other": {"10.98.0.0/16"}} {
		cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
		if err := f.Networking().V1().ServiceCIDRs().Informer().GetStore().Add(cidr); err != nil {
			t.Fatal(err)
		}
	}
	events := record.NewFakeRecorder(10)
	n := &Network{
		options: Options{Node: "here", Informers: f, Events: events}, ranges: []netip.Prefix{refused, routed},
		routes: routes{link: servicesLink(bridge.Name), bridge: bridge.Name, pods: []netip.Prefix{netip.MustParsePrefix("10.245.0.0/24"), pods}},
	}
	t.Cleanup(func() { _ = n.routes.remove() })
	for i, want := range []bool{true, false} {
		restored, err := n.ensureRoutes()
		if err != nil || restored != want {
			t.Fatalf("attempt %d: restored %v, error %v; want %v", i, restored, err, want)
		}
	}
	if got := destinations(t, n.routes.link); !slices.Contains(got, routed.String()) || slices.Contains(got, refused.String()) {
		t.Errorf("routes to %v, want one to %v and none to %v", got, routed, refused)
	}
	if len(events.Events) != 1 {
		t.Fatalf("%d events, want 1 of two attempts", len(events.Events))
	}
	if e := <-events.Events; !strings.HasPrefix(e, "Warning RouteRefused Node here itself cannot reach Services in 10.97.0.0/16, ") {
		t.Errorf("event %q", e)
	}
	n.routes.pods[0] = netip.MustParsePrefix("127.0.0.0/24") // an address that the machine has
	if restored, err := n.ensureRoutes(); !restored || err != nil || len(n.unrouted) > 0 {
		t.Errorf("with a source address: restored %v, refused %v, error %v", restored, n.unrouted, err)
	}
}

// TestFormerRangeIsNotRouted: the route to a range that Services had goes with the range; the kernel's own stay.
func TestFormerRangeIsNotRouted(t *testing.T) {
	pods := netip.MustParsePrefix("fd00:244::/64")
	bridge := netns.NewBridge(t, "kin-former", pods)
	r := routes{link: servicesLink(bridge.Name), bridge: bridge.Name, pods: []netip.Prefix{pods}}
	t.Cleanup(func() { _ = r.remove() })
	first, second := netip.MustParsePrefix("fd00:96::/112"), netip.MustParsePrefix("fd00:97::/112")
	for _, step := range []struct{ ranges, want []netip.Prefix }{
		{[]netip.Prefix{first, second}, []netip.Prefix{first, second}},
		{nil, []netip.Prefix{first, second}}, // before they are known
		{[]netip.Prefix{second}, []netip.Prefix{second}},
	} {
		if _, refused, err := r.ensure(step.ranges); err != nil || len(refused) > 0 {
			t.Fatalf("%v: refused %v, error %v", step.ranges, refused, err)
		}
		got := destinations(t, r.link)
		for _, p := range []netip.Prefix{first, second} {
			if slices.Contains(got, p.String()) != slices.Contains(step.want, p) {
				t.Errorf("with the ranges %v, routes to %v, want %v", step.ranges, got, step.want)
			}
		}
		if !slices.Contains(got, "fe80::/64") {
			t.Errorf("routes to %v, want the kernel's own to fe80::/64 among them", got)
		}
	}
}

// destinations returns the destinations of the routes by an interface.
func destinations(t *testing.T, name string) []string {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range routes {
		if r.Dst != nil {
			all = append(all, r.Dst.String())
		}
	}
	return all
}
