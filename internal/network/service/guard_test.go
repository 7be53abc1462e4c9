// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/test/netns"
)

// TestGuarded: a socket on an address of the machine is reached by its Service from pods and from the machine, but not
// from anywhere at the address itself. Its neighbours are not affected.
func TestGuarded(t *testing.T) {
	b := newBed(t)
	var machine *netns.Pod // the test's own namespace
	socket := netip.MustParseAddrPort("192.0.2.2:9053")
	machine.ServeAt(t, "guarded", socket.String())
	machine.ServeAt(t, "open", "192.0.2.2:9054")
	b.table.Put("", Base(Config{
		Bridge: "kin-test", Link: "kin-test-svc", Guarded: []netip.AddrPort{socket},
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}, ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}))
	b.put(newService(nil), &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{socket.Addr().String()}}},
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("web"), Port: ptr.To(int32(9053)), Protocol: ptr.To(v1.ProtocolTCP)},
			{Name: ptr.To("dns"), Port: ptr.To(int32(9053)), Protocol: ptr.To(v1.ProtocolUDP)},
		},
	})
	for network, port := range map[string]string{"tcp": ":80", "udp": ":53"} {
		b.wantAnswers(b.pods[0], network, "10.96.0.1"+port, "guarded")
		b.wantAnswers(machine, network, "10.96.0.1"+port, "guarded")
		for _, from := range []*netns.Pod{b.pods[0], b.outside, machine} {
			b.wantDropped(from, network, socket.String())
			b.wantAnswers(from, network, "192.0.2.2:9054", "open")
		}
	}
}
