// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// remnant are firewall chains that a part of the cluster does not remove.
type remnant struct {
	command, table string
	chains         []string
	// used, if not empty, is a chain whose rules show that other programs use the chains.
	used string
}

// remnants are the chains that kube-proxy shares with kubelet and therefore does not remove, and
// the common chains of CNI's portmap plugin.
var remnants = []remnant{
	{command: "iptables", table: "filter", chains: []string{"KUBE-FIREWALL"}},
	{command: "ip6tables", table: "filter", chains: []string{"KUBE-FIREWALL"}},
	{
		command: "iptables", table: "nat",
		chains: []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"},
		used:   "CNI-HOSTPORT-DNAT",
	},
}

// firewall returns the rules of each remnant's table.
func firewall(ctx context.Context) ([][]byte, error) {
	var tables [][]byte
	for _, r := range remnants {
		rules, err := exec.CommandContext(ctx, r.command+"-save", "-t", r.table).Output()
		if err != nil {
			return nil, fmt.Errorf("%s-save: %w; run \"make deps\"", r.command, err)
		}
		tables = append(tables, rules)
	}
	return tables, nil
}

// removeRemnants removes chains that did not exist before and that no other program uses.
func removeRemnants(ctx context.Context, before [][]byte) error {
	now, err := firewall(ctx)
	if err != nil {
		return err
	}
	for i, r := range remnants {
		for _, command := range r.removal(before[i], now[i]) {
			args := append([]string{"--wait", "-t", r.table}, command...)
			if out, err := exec.CommandContext(ctx, r.command, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s %s: %w: %s", r.command, strings.Join(args, " "), err, out)
			}
		}
	}
	return nil
}

// removal returns the commands that remove the chains, given the table's rules before and now:
// first the rules that jump to them, then their own rules, then the chains.
func (r remnant) removal(before, now []byte) (commands [][]string) {
	var flush, remove [][]string
	for _, chain := range r.chains {
		if hasChain(before, chain) {
			return nil
		}
		if hasChain(now, chain) {
			flush, remove = append(flush, []string{"-F", chain}), append(remove, []string{"-X", chain})
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(now))
	for lines.Scan() {
		rule, found := strings.CutPrefix(lines.Text(), "-A ")
		if !found {
			continue
		}
		from, _, _ := strings.Cut(rule, " ")
		if from == r.used {
			return nil
		}
		leads := func(chain string) bool { return strings.HasSuffix(rule, " -j "+chain) }
		if !slices.Contains(r.chains, from) && slices.ContainsFunc(r.chains, leads) {
			commands = append(commands, append([]string{"-D"}, arguments(rule)...))
		}
	}
	return slices.Concat(commands, flush, remove)
}

func hasChain(rules []byte, chain string) bool {
	return bytes.Contains(rules, []byte("\n:"+chain+" "))
}

// arguments returns the words of a rule. A quoted comment is one word.
func arguments(rule string) (words []string) {
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}
