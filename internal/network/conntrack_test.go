// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/service"
)

func TestStaleFlows(t *testing.T) {
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("10.244.0.2:53"), netip.MustParseAddrPort("10.244.0.3:53")}
	stale := newStaleFlows([]service.Datagrams{
		{To: netip.MustParseAddr("10.96.0.10"), Port: 53, Endpoints: endpoints},
		{To: netip.MustParseAddr("fd00:96::a"), Port: 53, Endpoints: []netip.AddrPort{netip.MustParseAddrPort("[fd00:244::2]:53")}},
		{Port: 30053, Endpoints: endpoints},
	})
	for name, tt := range map[string]struct {
		protocol uint8
		to, by   string
		want     bool
	}{
		"to a present endpoint":            {unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.0.2:53", false},
		"to one that is gone":              {unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.0.9:53", true},
		"to another port of it":            {unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.0.2:54", true},
		"from before there was one":        {unix.IPPROTO_UDP, "10.96.0.10:53", "10.96.0.10:53", true},
		"of another Service":               {unix.IPPROTO_UDP, "10.96.0.11:53", "10.244.0.9:53", false},
		"TCP":                              {unix.IPPROTO_TCP, "10.96.0.10:53", "10.244.0.9:53", false},
		"IPv6, present":                    {unix.IPPROTO_UDP, "[fd00:96::a]:53", "[fd00:244::2]:53", false},
		"IPv6, gone":                       {unix.IPPROTO_UDP, "[fd00:96::a]:53", "[fd00:244::9]:53", true},
		"node port, present":               {unix.IPPROTO_UDP, "192.0.2.1:30053", "10.244.0.3:53", false},
		"node port, gone":                  {unix.IPPROTO_UDP, "192.0.2.1:30053", "10.244.0.9:53", true},
		"the same port of another machine": {unix.IPPROTO_UDP, "198.51.100.1:30053", "198.51.100.1:30053", false},
		"to the endpoint itself":           {unix.IPPROTO_UDP, "10.244.0.9:53", "10.244.0.9:53", false},
	} {
		to, by := netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.by)
		flow := &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{Protocol: tt.protocol, DstIP: to.Addr().AsSlice(), DstPort: to.Port()},
			Reverse: netlink.IPTuple{Protocol: tt.protocol, SrcIP: by.Addr().AsSlice(), SrcPort: by.Port()},
		}
		if got := stale.MatchConntrackFlow(flow); got != tt.want {
			t.Errorf("%s: stale %t, want %t", name, got, tt.want)
		}
	}
}

// A UDP client that keeps its source port is sent to the next endpoint when its endpoint goes.
func TestUDPClientFollowsTheEndpoints(t *testing.T) {
	client, _, _ := start(t)
	ctx := t.Context()
	svc, err := client.CoreV1().Services("ns").Get(ctx, "svc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: "udp", Port: 53, Protocol: v1.ProtocolUDP})
	if _, err := client.CoreV1().Services("ns").Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// First the endpoint is a port at which nothing listens.
	slice, err := client.DiscoveryV1().EndpointSlices("ns").Get(ctx, "svc-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To("udp"), Port: ptr.To(int32(9)), Protocol: ptr.To(v1.ProtocolUDP)})
	if slice, err = client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", "10.96.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := func() (string, error) {
		_, _ = conn.Write([]byte("x"))
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		buffer := make([]byte, 64)
		n, err := conn.Read(buffer)
		return string(buffer[:n]), err
	}
	for began := time.Now(); time.Since(began) < time.Second; {
		if got, err := answer(); err == nil {
			t.Fatalf("got the answer %q, although the endpoint does not listen", got)
		}
	}
	slice.Ports[1].Port = ptr.To(int32(8080))
	if _, err = client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = fmt.Errorf("no attempt")
	var got string
	for began := time.Now(); err != nil && time.Since(began) < 5*time.Second; {
		got, err = answer()
	}
	if err != nil || !strings.HasPrefix(got, "pod") {
		t.Errorf("got %q, %v: the packets still go to the old endpoint", got, err)
	}
}
