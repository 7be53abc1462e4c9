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

// The firewall rules of a pod network stand in two chains of its own, so that they
// can be replaced and removed as a whole. They are written with iptables, not
// nft, because that is where other software of a machine (Docker sets the policy
// of FORWARD to DROP) must let pods through.

// chains are the names of the two chains of a data directory. A name has at most
// 28 bytes.
func chains(n Names) (masquerade, forward string) {
	return "KINDRED-" + n.ID + "-MASQ", "KINDRED-" + n.ID + "-FWD"
}

// jump is a rule of a built-in chain that leads to one of ours.
type jump struct{ table, from, to string }

func jumps(n Names) []jump {
	masquerade, forward := chains(n)
	return []jump{{"nat", "POSTROUTING", masquerade}, {"filter", "FORWARD", forward}}
}

// ensureFirewall lets pods' packets through the host, and gives those that leave the
// pod range the host's address. Multicast keeps its source.
func ensureFirewall(ctx context.Context, n Names, pods netip.Prefix) error {
	masquerade, forward := chains(n)
	// Naming a chain with --noflush creates or empties it; all is one transaction.
	rules := fmt.Sprintf(`*nat
:%[1]s - [0:0]
-A %[1]s ! -s %[4]s -j RETURN
-A %[1]s -d %[4]s -j RETURN
-A %[1]s -d 224.0.0.0/4 -j RETURN
-A %[1]s -j MASQUERADE
COMMIT
*filter
:%[2]s - [0:0]
-A %[2]s -i %[3]s -j ACCEPT
-A %[2]s -o %[3]s -j ACCEPT
COMMIT
`, masquerade, forward, n.Bridge, pods)
	if err := run(ctx, rules, "iptables-restore", "--noflush", "--wait"); err != nil {
		return fmt.Errorf("writing the pod network's firewall rules: %w", err)
	}
	for _, j := range jumps(n) {
		if run(ctx, "", "iptables", "--wait", "-t", j.table, "-C", j.from, "-j", j.to) == nil {
			continue
		}
		if err := run(ctx, "", "iptables", "--wait", "-t", j.table, "-I", j.from, "-j", j.to); err != nil {
			return fmt.Errorf("writing the pod network's firewall rules: %w", err)
		}
	}
	return nil
}

// removeFirewall takes back what ensureFirewall did. Each command fails when its
// rule or chain is gone already, which is what is wanted.
func removeFirewall(ctx context.Context, n Names) {
	for _, j := range jumps(n) {
		_ = run(ctx, "", "iptables", "--wait", "-t", j.table, "-D", j.from, "-j", j.to)
		_ = run(ctx, "", "iptables", "--wait", "-t", j.table, "-F", j.to)
		_ = run(ctx, "", "iptables", "--wait", "-t", j.table, "-X", j.to)
	}
}

// run runs a program and makes its last words part of the error.
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
