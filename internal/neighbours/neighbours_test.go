// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// TestAnnounce: the machine and a pod have entries for the addresses of another pod that are those of a former one.
func TestAnnounce(t *testing.T) {
	bridge := netns.NewBridge(t, "kin-near", netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64"))
	former := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	reused, other := bridge.Pod(t), bridge.Pod(t)
	everywhere := map[string]func(func()){bridge.Name: func(do func()) { do() }, "eth0": func(do func()) { other.Do(t, do) }}
	for name, in := range everywhere {
		in(func() {
			for _, a := range reused.Addresses {
				entry := &netlink.Neigh{LinkIndex: link(t, name).Attrs().Index, IP: a.AsSlice(), HardwareAddr: former, State: netlink.NUD_REACHABLE}
				if err := netlink.NeighSet(entry); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var now net.HardwareAddr
	reused.Do(t, func() {
		l := link(t, "eth0")
		now = l.Attrs().HardwareAddr
		for _, a := range reused.Addresses {
			if err := Announce(l, a); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
	})
	for name, in := range everywhere {
		in(func() {
			for _, a := range reused.Addresses {
				if got := entryOf(t, name, a, now); !bytes.Equal(got, now) {
					t.Errorf("%s knows %v at %v, want %v", name, a, got, now)
				}
			}
		})
	}
}

func link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// entryOf returns the hardware address that the entry for an address has, once it is the wanted one or five seconds have
// passed.
func entryOf(t *testing.T, name string, a netip.Addr, want net.HardwareAddr) (got net.HardwareAddr) {
	t.Helper()
	family := netlink.FAMILY_V6
	if a.Is4() {
		family = netlink.FAMILY_V4
	}
	for began := time.Now(); time.Since(began) < 5*time.Second && !bytes.Equal(got, want); time.Sleep(5 * time.Millisecond) {
		entries, err := netlink.NeighList(link(t, name).Attrs().Index, family)
		if err != nil {
			t.Error(err)
			return nil
		}
		for _, e := range entries {
			if e.IP.Equal(a.AsSlice()) {
				got = e.HardwareAddr
			}
		}
	}
	return got
}

func TestAnnounceWithoutEthernet(t *testing.T) {
	if err := Announce(&netlink.Device{}, netip.MustParseAddr("10.0.0.1")); err != nil {
		t.Error(err)
	}
}
