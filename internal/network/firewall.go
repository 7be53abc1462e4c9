// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
)

// Firewall is a chain of another program that drops the forwarded packets that it does not accept. A packet must be
// accepted by the chains of all tables, so no rule of Kindred's can let packets of pods pass it.
type Firewall struct {
	Family, Table, Chain string
	bridge               string
}

// Remedy returns a message that says what the chain does, and which commands accept the packets of pods there.
func (f Firewall) Remedy() string {
	chain := f.Family + " " + f.Table + " " + f.Chain
	return fmt.Sprintf("the firewall of this machine (nft list chain %[1]s) drops forwarded packets that it does not accept; "+
		"unless it accepts those of pods, they reach nothing outside of this machine, and Services are not reached from outside; to accept them: "+
		"nft insert rule %[1]s iifname %[2]s accept; nft insert rule %[1]s oifname %[2]s accept", chain, f.bridge)
}

// Firewalls returns the chains that may drop packets of the pods on a bridge: those with the hook forward and the policy
// drop. The chain FORWARD of iptables, whose policy Docker changes, is not among them: it has a rule for pods
// (package containerd). It needs the right to list rules. Rules of a chain that drop are not recognized.
func Firewalls(ctx context.Context, bridge string) ([]Firewall, error) {
	out, err := exec.CommandContext(ctx, "nft", "--json", "list", "chains").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the chains of the machine's firewall: %w", err)
	}
	return firewallsIn(out, bridge)
}

func firewallsIn(listed []byte, bridge string) ([]Firewall, error) {
	var rules struct {
		NFTables []struct {
			Chain struct{ Family, Table, Name, Hook, Policy string }
		}
	}
	if err := json.Unmarshal(listed, &rules); err != nil {
		return nil, fmt.Errorf("listing the chains of the machine's firewall: %w", err)
	}
	var found []Firewall
	for _, r := range rules.NFTables {
		c := r.Chain
		iptables := c.Family != "inet" && c.Table == "filter" && c.Name == "FORWARD"
		if c.Hook == "forward" && c.Policy == "drop" && slices.Contains([]string{"inet", "ip", "ip6"}, c.Family) && !iptables {
			found = append(found, Firewall{Family: c.Family, Table: c.Table, Chain: c.Name, bridge: bridge})
		}
	}
	return found, nil
}
