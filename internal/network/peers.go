// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// peers are the ranges of the pods of the cluster's other nodes, as the firewall has them.
type peers struct {
	ranges []netip.Prefix
	// written is false until the firewall has them.
	written bool
}

// keepSources keeps the source addresses of packets from this node's pods to those of other nodes, as the network model
// of Kubernetes asks: all pods reach each other without translation of addresses. changed is set if nodes may have
// changed.
func (n *Network) keepSources(ctx context.Context, changed bool) {
	if n.options.PodNetwork == nil || n.peers.written && !changed {
		return
	}
	ranges := n.podsElsewhere()
	if n.peers.written && slices.Equal(ranges, n.peers.ranges) {
		return
	}
	err := n.options.PodNetwork.KeepSources(ctx, ranges)
	n.unmended.log("the ranges of other nodes' pods", err)
	n.peers = peers{ranges: ranges, written: err == nil}
}

// podsElsewhere returns the ranges of the pods of all other nodes, sorted. Simulated nodes send no packets.
func (n *Network) podsElsewhere() []netip.Prefix {
	nodes, _ := n.options.Informers.Core().V1().Nodes().Lister().List(labels.Everything()) // from the cache
	var all []netip.Prefix
	for _, node := range nodes {
		if node.Name != n.options.Node && !n.simulated(node) {
			all = append(all, podRanges(node)...)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// simulated reports whether a node runs no containers.
func (n *Network) simulated(node *v1.Node) bool {
	_, simulated := node.Labels[n.options.Simulated]
	return simulated
}

// podRanges returns the valid ranges of a node's pods.
func podRanges(node *v1.Node) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range node.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			klog.ErrorS(err, "The range of a node's pods is not valid; its pods see a translated address", "node", node.Name)
			continue
		}
		all = append(all, p.Masked())
	}
	return all
}
