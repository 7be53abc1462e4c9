// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/test/netns"
)

// checkedPods counts the checks of the host's firewall.
type checkedPods struct {
	PodNetwork
	checks int
}

func (*checkedPods) EnsureBridge() (bool, error) { return false, nil }

func (p *checkedPods) EnsureFirewall(context.Context) (bool, error) {
	p.checks++
	return false, nil
}

// The host's firewall is checked after each transaction of another program, and always if iptables-legacy has tables,
// because its changes are no such transactions.
func TestFirewallChecks(t *testing.T) {
	if _, err := exec.LookPath("iptables-legacy"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	netns.NewMachine(t, "legacy", netip.MustParsePrefix("192.0.2.1/24")).Do(t, func() {
		rules, err := nft.Open(table)
		if err != nil {
			t.Error(err)
			return
		}
		rules.Put("", nft.Fragment{Chains: map[string]nft.Chain{"services": {}}})
		pods := &checkedPods{}
		n := &Network{options: Options{PodNetwork: pods}, table: rules, unmended: unmended{}}
		if _, err := rules.Write(t.Context()); err != nil {
			t.Error(err)
		}
		for _, step := range []struct {
			after string
			do    func()
			want  int
		}{
			{"the first write", func() {}, 1},
			{"no change", func() {}, 0},
			{"a change of nftables", func() { command(t, "nft", "add table inet other") }, 1},
			{"that change was seen", func() {}, 0},
			{"a change of iptables-legacy", func() { command(t, "iptables-legacy", "-A", "FORWARD", "-j", "ACCEPT") }, 1},
			{"another change of iptables-legacy may have happened", func() {}, 1},
		} {
			step.do()
			pods.checks = 0
			n.mend(t.Context())
			if pods.checks != step.want {
				t.Errorf("after %s: %d checks of the firewall, want %d", step.after, pods.checks, step.want)
			}
		}
	})
}
