// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/kindred-project/kindred/test/netns"
)

func TestDefaultAddresses(t *testing.T) {
	netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	netns.NewMachine(t, "vpn", netip.MustParsePrefix("198.51.100.1/24"))
	for _, step := range []struct{ command, want string }{
		{"true", "[]"},
		{"ip route add default via 192.0.2.1 metric 100", "[192.0.2.2]"},
		{"ip route add default via 198.51.100.1 metric 50", "[198.51.100.2]"},
		{"ip address add 198.51.100.9/24 dev vpn && ip route change default via 198.51.100.1 metric 50 src 198.51.100.9", "[198.51.100.9]"},
		{"ip route del default metric 50 && ip route add 10.0.0.0/8 via 198.51.100.1", "[192.0.2.2]"},
		{"ip -6 address add 2001:db8::2/64 nodad dev outside && ip -6 route add default via 2001:db8::1", "[192.0.2.2 2001:db8::2]"},
		{"ip -6 route change default via 2001:db8::1 src 2001:db8::2 && ip -6 address add 2001:db8::3/64 nodad dev outside", "[192.0.2.2 2001:db8::2]"},
		{"ip -6 address change 2001:db8::2/64 nodad dev outside preferred_lft 0 && ip -6 route change default via 2001:db8::1", "[192.0.2.2 2001:db8::3]"},
		{"ip route del default", "[2001:db8::3]"},
	} {
		if out, err := exec.Command("sh", "-c", step.command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", step.command, err, out)
		}
		got, err := DefaultAddresses(true)
		if err != nil || fmt.Sprint(got) != step.want {
			t.Errorf("%s: got %v, %v; want %s", step.command, got, err, step.want)
		}
	}
}
