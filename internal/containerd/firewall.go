// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// The firewall rules of a pod network are in chains of its own, so that they can be replaced and removed as a
// whole. They are iptables rules, not nft, because other software of the machine filters there: Docker sets
// the policy of FORWARD to DROP.

// chains returns the names of the chains of a data directory to which built-in chains jump. Chain names have at most 28
// bytes.
func chains(n Names) (masquerade, forward string) {
	return "KINDRED-" + n.ID + "-MASQ", "KINDRED-" + n.ID + "-FWD"
}

// peersChain returns the name of the chain that accepts packets to the pods of other nodes before they are masqueraded.
func peersChain(n Names) string { return "KINDRED-" + n.ID + "-PEERS" }

// jump is a rule in a built-in chain that jumps to a chain of the data directory.
type jump struct{ table, from, to string }

func jumps(n Names) []jump {
	masquerade, forward := chains(n)
	return []jump{{"nat", "POSTROUTING", masquerade}, {"filter", "FORWARD", forward}}
}

// family is what iptables needs to know about an IP family.
type family struct{ iptables, restore, multicast string }

var (
	ipv4 = family{"iptables", "iptables-restore", "224.0.0.0/4"}
	ipv6 = family{"ip6tables", "ip6tables-restore", "ff00::/8"}
)

func familyOf(p netip.Prefix) family {
	if p.Addr().Is4() {
		return ipv4
	}
	return ipv6
}

// ensureFirewall accepts forwarded packets of pods, and masquerades those that leave the pod ranges, except
// multicast.
func ensureFirewall(ctx context.Context, n Names, pods []netip.Prefix) error {
	for _, p := range pods {
		if err := familyOf(p).ensure(ctx, n, p); err != nil {
			return fmt.Errorf("writing the pod network's firewall rules: %w", err)
		}
	}
	return nil
}

func (f family) ensure(ctx context.Context, n Names, pods netip.Prefix) error {
	masquerade, forward := chains(n)
	// An existing chain keeps its rules: a restart does not change the addresses that other nodes see. If it cannot be
	// created, the rule below that jumps to it fails.
	_ = run(ctx, "", f.iptables, "--wait", "-t", "nat", "-N", peersChain(n))
	// With --noflush, declaring a chain creates or flushes it. The input is one transaction.
	rules := fmt.Sprintf(`*nat
:%[1]s - [0:0]
-A %[1]s ! -s %[4]s -j RETURN
-A %[1]s -d %[4]s -j RETURN
-A %[1]s -d %[5]s -j RETURN
-A %[1]s -j %[6]s
-A %[1]s -j MASQUERADE
COMMIT
*filter
:%[2]s - [0:0]
-A %[2]s -i %[3]s -j ACCEPT
-A %[2]s -o %[3]s -j ACCEPT
COMMIT
`, masquerade, forward, n.Bridge, pods, f.multicast, peersChain(n))
	if err := run(ctx, rules, f.restore, "--noflush", "--wait"); err != nil {
		return err
	}
	for _, j := range jumps(n) {
		if f.has(ctx, j) {
			continue
		}
		if err := run(ctx, "", f.iptables, "--wait", "-t", j.table, "-I", j.from, "-j", j.to); err != nil {
			return err
		}
	}
	return nil
}

// keepSources replaces the rules of the chain of peers.
func (f family) keepSources(ctx context.Context, n Names, ranges []netip.Prefix) error {
	var rules strings.Builder
	fmt.Fprintf(&rules, "*nat\n:%s - [0:0]\n", peersChain(n))
	for _, r := range ranges {
		if familyOf(r) == f {
			fmt.Fprintf(&rules, "-A %s -d %s -j ACCEPT\n", peersChain(n), r)
		}
	}
	rules.WriteString("COMMIT\n")
	return run(ctx, rules.String(), f.restore, "--noflush", "--wait")
}

func (f family) has(ctx context.Context, j jump) bool {
	return run(ctx, "", f.iptables, "--wait", "-t", j.table, "-C", j.from, "-j", j.to) == nil
}

func (f family) hasJumps(ctx context.Context, n Names) bool {
	for _, j := range jumps(n) {
		if !f.has(ctx, j) {
			return false
		}
	}
	return true
}

// removeFirewall removes the rules and chains of ensureFirewall. It ignores errors, because each command fails if
// its rule or chain does not exist.
func removeFirewall(ctx context.Context, n Names) {
	for _, f := range []family{ipv4, ipv6} {
		for _, j := range jumps(n) {
			_ = run(ctx, "", f.iptables, "--wait", "-t", j.table, "-D", j.from, "-j", j.to)
			_ = run(ctx, "", f.iptables, "--wait", "-t", j.table, "-F", j.to)
			_ = run(ctx, "", f.iptables, "--wait", "-t", j.table, "-X", j.to)
		}
		_ = run(ctx, "", f.iptables, "--wait", "-t", "nat", "-F", peersChain(n))
		_ = run(ctx, "", f.iptables, "--wait", "-t", "nat", "-X", peersChain(n))
	}
}

// run runs a program. The error has the program's output.
func run(ctx context.Context, stdin, program string, args ...string) error {
	path, err := lookPath(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(out.String()))
	}
	return nil
}
