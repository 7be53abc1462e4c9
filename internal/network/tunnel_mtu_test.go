// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// setUnderlayMTU sets the MTU of the link below the tunnel.
func (m *tunnelled) setUnderlayMTU(t *testing.T, mtu int) {
	t.Helper()
	m.Do(t, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetMTU(link, mtu)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// hasMTU checks the MTU of the tunnel, and that it is the interface with an index, which it returns. The index 0 is any.
func (m *tunnelled) hasMTU(t *testing.T, when string, mtu, index int) (same int) {
	t.Helper()
	m.link(t, func(link netlink.Link) error {
		if link.Attrs().MTU != mtu {
			t.Errorf("%s: the MTU of the tunnel is %d, want %d", when, link.Attrs().MTU, mtu)
		}
		if same = link.Attrs().Index; index != 0 && same != index {
			t.Errorf("%s: another interface", when)
		}
		return nil
	})
	return same
}

// TestTunnelMTU: the MTU follows that of the link below, comes back after somebody has changed it, and connections continue.
func TestTunnelMTU(t *testing.T) {
	left, right := twoTunnelled(t)
	right.Echo(t, 7)
	conn, err := left.Dial(t, "tcp", "10.244.2.1:7", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	continues := func(when string) {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	index := left.hasMTU(t, "at first", 1450, 0)
	for name, mtu := range map[string]int{"more": 9000, "less": 1400, "too little for IPv6": 1200} {
		left.link(t, func(link netlink.Link) error { return netlink.LinkSetMTU(link, mtu) })
		left.ensure(t, true, right)
		left.hasMTU(t, name, 1450, index)
		left.hasEnds(t, name, left.routes.tunnel.link)
		left.reaches(t, name, right)
		continues(name)
		left.ensure(t, false, right)
	}
	for _, mtu := range []int{9000, 1400} {
		left.setUnderlayMTU(t, mtu)
		left.ensure(t, true, right)
		left.hasMTU(t, "the link below has another MTU", mtu-50, index)
		continues("the link below has another MTU")
		left.link(t, netlink.LinkDel)
		left.ensure(t, true, right)
		index = left.hasMTU(t, "a new interface", mtu-50, 0)
		left.ensure(t, false, right)
	}
}

// TestTooSmallForIPv6: with a link below whose MTU leaves too little for IPv6, pods still reach each other by IPv4.
func TestTooSmallForIPv6(t *testing.T) {
	left, right := twoTunnelled(t)
	left.link(t, netlink.LinkDel)
	left.setUnderlayMTU(t, 1300)
	for _, when := range []string{"a new interface", "the interface exists"} {
		var err error
		left.Do(t, func() { _, err = left.routes.ensure() })
		if err == nil || !strings.Contains(err.Error(), "address fd00:10:244:1::") {
			t.Errorf("%s: got the error %v, want one about the IPv6 address", when, err)
		}
		if answer, err := left.Ask(t, "tcp", "10.244.2.1:80", time.Second); err != nil {
			t.Errorf("%s: %q, %v", when, answer, err)
		}
	}
	left.setUnderlayMTU(t, 1500)
	left.ensure(t, true, right)
	left.reaches(t, "there is enough for IPv6", right)
}
