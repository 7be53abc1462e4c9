// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/kindred-project/kindred/test/netns"
)

// TestSourcesAreKept: another node sees the address of the pod that calls one of its own, other machines that of the
// node. A restart changes neither.
func TestSourcesAreKept(t *testing.T) {
	netns.Required(t)
	names, err := NamesFor("0a1b2c3d")
	if err != nil {
		t.Fatal(err)
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24"), netip.MustParsePrefix("fd00:244:9::/64")}
	pod := netns.NewBridge(t, names.Bridge, ranges...).Pod(t)
	o := NetworkOptions{Names: names, Dir: t.TempDir(), PodCIDRs: ranges, IPv6: true}
	t.Cleanup(func() { removeFirewall(context.Background(), names) })
	restart := func() Network {
		t.Helper()
		n, err := EnsureNetwork(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	network := restart()
	for name, f := range map[string]struct{ elsewhere, own string }{
		"v4": {"10.245.7.2/24", pod.Addresses[0].String()},
		"v6": {"fd00:245:7::2/64", pod.Addresses[1].String()},
	} {
		prefix := netip.MustParsePrefix(f.elsewhere)
		machine := netns.NewMachine(t, "other-"+name, prefix)
		machine.Serve(t, "seen", 80)
		seen := func(when, want string) {
			t.Helper()
			answer, err := pod.Ask(t, "tcp", netip.AddrPortFrom(prefix.Addr(), 80).String(), 5*time.Second)
			if err != nil || answer != "seen "+want {
				t.Errorf("%s: answer %q, %v, want %s", when, answer, err, want)
			}
		}
		keep := func(ranges ...netip.Prefix) {
			t.Helper()
			if err := network.KeepSources(t.Context(), ranges); err != nil {
				t.Fatal(err)
			}
		}
		translated := prefix.Addr().Next().String()
		seen("another machine", translated)
		keep(netip.MustParsePrefix("10.245.8.0/24"), netip.MustParsePrefix("fd00:245:8::/64"))
		seen("another range", translated)
		keep(prefix.Masked(), netip.MustParsePrefix("10.245.8.0/24"))
		seen("a node", f.own)
		restart()
		seen("after a restart", f.own)
		keep()
		seen("the node is gone", translated)
	}
}
