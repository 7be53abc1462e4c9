// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// podNetwork records the calls of KeepSources.
type podNetwork struct {
	PodNetwork
	kept [][]string
	err  error
}

func (p *podNetwork) KeepSources(_ context.Context, ranges []netip.Prefix) error {
	kept := []string{}
	for _, r := range ranges {
		kept = append(kept, r.String())
	}
	p.kept = append(p.kept, kept)
	return p.err
}

// TestKeepSources: the firewall gets the ranges of the other nodes that run containers, once for each change, and again
// after a failure or a loss of its rules.
func TestKeepSources(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	nodes := f.Core().V1().Nodes().Informer().GetIndexer()
	pods := &podNetwork{}
	n := &Network{options: Options{Node: "here", Simulated: "simulated", Informers: f, PodNetwork: pods}, unmended: unmended{}}
	put := func(name string, labels map[string]string, ranges ...string) {
		_ = nodes.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: v1.NodeSpec{PodCIDRs: ranges}})
	}
	step := func(when string, want ...[]string) {
		t.Helper()
		pods.kept = nil
		n.keepSources(t.Context(), slices.SortedFunc(maps.Keys(n.podsElsewhere()), netip.Prefix.Compare))
		if diff := cmp.Diff(want, pods.kept); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	put("here", nil, "10.244.0.0/24")
	step("alone: what an earlier process wrote is replaced", []string{})
	step("no change")
	put("simulated", map[string]string{"simulated": ""}, "10.244.9.0/24")
	put("b", nil, "10.244.2.0/24", "fd00:2::/64")
	put("a", nil, "10.244.1.7/24", "not a range")
	step("two nodes", []string{"10.244.1.0/24", "10.244.2.0/24", "fd00:2::/64"})
	step("no change")
	_ = nodes.Delete(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	pods.err = errors.New("no iptables")
	step("a failure", []string{"10.244.2.0/24", "fd00:2::/64"})
	pods.err = nil
	step("the next attempt", []string{"10.244.2.0/24", "fd00:2::/64"})
	n.peers.written = false
	step("rules were restored", []string{"10.244.2.0/24", "fd00:2::/64"})
}

// TestTunnelsByAnnotation: packets for pods go through a tunnel if the machine at either end wants it.
func TestTunnelsByAnnotation(t *testing.T) {
	for _, test := range []struct {
		here, there string
		want        bool
	}{{"", "", false}, {"auto", "auto", false}, {"auto", "vxlan", true}, {"vxlan", "", true}, {"vxlan", "vxlan", true}} {
		f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
		nodes := f.Core().V1().Nodes().Informer().GetIndexer()
		for name, mode := range map[string]string{"here": test.here, "there": test.there} {
			_ = nodes.Add(&v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{PodsAnnotation: mode}}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
				Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}},
			})
		}
		n := &Network{options: Options{Node: "here", Simulated: "simulated", Informers: f}}
		pods, address := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParseAddr("192.0.2.1")
		want := map[netip.Prefix]hop{pods: {address: address, tunnelled: test.want, end: tunnelEnd{address, pods}}}
		if got := n.podsElsewhere(); !maps.Equal(got, want) {
			t.Errorf("%q and %q: %v, want %v", test.here, test.there, got, want)
		}
	}
}

// TestSealsByAnnotation: packets for pods are encrypted if the machine at either end wants it, for the key of the other one.
func TestSealsByAnnotation(t *testing.T) {
	key, err := wgtypes.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	pods, address := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParseAddr("192.0.2.1")
	for _, test := range []struct {
		here, there, key string
		sealed           bool
		end              sealedEnd
	}{
		{"auto", "auto", key.String(), false, sealedEnd{}}, // a key of an earlier start
		{"wireguard", "auto", "", true, sealedEnd{}},
		{"auto", "wireguard", key.String(), true, sealedEnd{address, key}},
		{"wireguard", "wireguard", key.String(), true, sealedEnd{address, key}},
		{"wireguard", "wireguard", "no key", true, sealedEnd{}},
	} {
		f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
		nodes := f.Core().V1().Nodes().Informer().GetIndexer()
		_ = nodes.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Annotations: map[string]string{PodsAnnotation: test.here}}})
		_ = nodes.Add(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "there", Annotations: map[string]string{PodsAnnotation: test.there, WireGuardAnnotation: test.key}},
			Spec:       v1.NodeSpec{PodCIDRs: []string{pods.String()}},
			Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address.String()}}},
		})
		n := &Network{options: Options{Node: "here", Simulated: "simulated", Informers: f}}
		if got := n.podsElsewhere()[pods]; got.sealed != test.sealed || got.sealedEnd != test.end {
			t.Errorf("%+v: got %+v", test, got)
		}
	}
}
