// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"

	"sigs.k8s.io/knftables"
)

// counts has the number of rules of each chain, and the number of elements of each set and map; 0 if rules add them.
type counts struct{ rules, elements map[string]int }

// Intact reports whether the kernel's table has the chains, sets and maps that were written, with the same numbers of
// rules and elements. It does not compare elements that rules added.
func (t *Table) Intact(ctx context.Context) (bool, error) {
	have, err := t.listed(ctx)
	if err != nil {
		if _, missing := t.nft.ListAll(ctx); knftables.IsNotFound(missing) {
			return false, nil
		}
		return false, err
	}
	for name := range have.elements {
		if set, ok := t.content.sets.value(name); ok && set.dynamic() {
			have.elements[name] = 0
		}
	}
	want := t.content.counts()
	return maps.Equal(have.rules, want.rules) && maps.Equal(have.elements, want.elements), nil
}

func (c *Content) counts() counts {
	n := counts{map[string]int{}, map[string]int{}}
	for name, chain := range c.chains.wanted {
		n.rules[name] = len(chain.first.value.each())
	}
	for name := range c.sets.wanted {
		n.elements[name] = 0
	}
	for e := range c.elems.wanted {
		if _, present := n.elements[e.Set]; present {
			n.elements[e.Set]++
		}
	}
	return n
}

// listed returns the counts of the kernel's table. One command lists all of it: knftables has a command for each
// set, of which there are as many as a Service has endpoints.
func (t *Table) listed(ctx context.Context) (counts, error) {
	out, err := exec.CommandContext(ctx, "nft", "--json", "list", "table", string(knftables.InetFamily), t.name).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return counts{}, fmt.Errorf("listing the nftables table: %w", err)
	}
	return countsIn(out)
}

// countsIn counts what nft listed. It does not read rules and elements, whose form depends on nft's version.
func countsIn(listed []byte) (counts, error) {
	type set struct {
		Name string
		Elem []json.RawMessage
	}
	var table struct {
		NFTables []struct {
			Chain, Rule *struct{ Name, Chain string }
			Set, Map    *set
		}
	}
	if err := json.Unmarshal(listed, &table); err != nil {
		return counts{}, fmt.Errorf("listing the nftables table: %w", err)
	}
	n := counts{map[string]int{}, map[string]int{}}
	for _, object := range table.NFTables {
		switch {
		case object.Chain != nil:
			n.rules[object.Chain.Name] += 0 // also if it has no rules
		case object.Rule != nil:
			n.rules[object.Rule.Chain]++
		case object.Set != nil:
			n.elements[object.Set.Name] = len(object.Set.Elem)
		case object.Map != nil:
			n.elements[object.Map.Name] = len(object.Map.Elem)
		}
	}
	return n, nil
}
