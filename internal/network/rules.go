// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kindred-project/kindred/internal/network/hostport"
	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/policy"
	"github.com/kindred-project/kindred/internal/network/service"
)

// RuleOptions configure the rules of one node.
type RuleOptions struct {
	// Table is the name of the nftables table, which no other process writes.
	Table string
	// Bridge is the interface of the node's pods, with the gateways of PodRanges, of which there is at most one of each
	// IP family; "" if a runtime that the user provides has its own network.
	Bridge    string
	PodRanges []netip.Prefix
	// Clusters matches the names of such interfaces of all clusters on the machine, in nft's syntax.
	Clusters string
}

// Rules is the nftables table of one node.
type Rules struct {
	RuleOptions
	table *nft.Table
}

// OpenRules returns the table of a node, without a change of the kernel's. It fails if the machine cannot change nftables
// rules: without the program nft, with one that is older than 1.0.1, without the right to, or if the kernel lacks a
// feature that the rules need.
func OpenRules(ctx context.Context, o RuleOptions) (*Rules, error) {
	table, err := nft.Open(o.Table)
	if err != nil {
		return nil, err
	}
	r := &Rules{o, table}
	table.Put("", r.base(nil, nil))
	if err := table.Check(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// base returns the rules that those of all Services and policies need, for ranges of Services, and for sockets of the
// machine that are reached by a Service only.
func (r *Rules) base(ranges []netip.Prefix, guarded []netip.AddrPort) nft.Fragment {
	config := service.Config{PodRanges: r.PodRanges, ServiceRanges: outermost(ranges), Guarded: guarded}
	if r.Bridge != "" {
		config.Bridge, config.Link, config.Clusters = r.Bridge, servicesLink(r.Bridge), r.Clusters
	}
	base := service.Base(config)
	base.Add(policy.Base())
	base.Add(hostport.Base())
	return base
}

// outermost removes the ranges that are within others. They are sorted. A set of intervals must not overlap.
func outermost(sorted []netip.Prefix) []netip.Prefix {
	var kept []netip.Prefix
	for _, p := range sorted {
		if !slices.ContainsFunc(kept, func(outer netip.Prefix) bool { return outer.Overlaps(p) && outer.Bits() <= p.Bits() }) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Remove removes the table and the routes from the kernel. It needs no nft if there is no table.
func Remove(ctx context.Context, table, bridge string) error {
	toPods := newPodRoutes(bridge)
	err := errors.Join((&routes{link: servicesLink(bridge)}).remove(), toPods.removeAll(), removeRejects())
	t, openErr := nft.Open(table)
	if openErr != nil {
		// Without nft, no table has been written.
		return err
	}
	if deleteErr := t.Delete(ctx); deleteErr != nil {
		err = errors.Join(err, fmt.Errorf("removing the nftables table %s: %w", table, deleteErr))
	}
	return err
}
