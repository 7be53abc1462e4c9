// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// peers are the ranges of the pods of the cluster's other nodes, as the firewall has them.
type peers struct {
	ranges []netip.Prefix
	// written is false until the firewall has them.
	written bool
}

// connectPods lets the pods of this node and those of others reach each other, as the network model of Kubernetes asks:
// by routes, and without translation of addresses. changed is set if nodes may have changed.
func (n *Network) connectPods(ctx context.Context, changed bool) {
	if n.options.PodNetwork == nil || n.peers.written && !changed {
		return
	}
	peers := n.podsElsewhere()
	n.podRoutes.tunnel, n.podRoutes.wireguard = n.tunnel(), n.wireguard()
	n.podRoutes.set(reachable(peers))
	_, err := n.podRoutes.ensure()
	n.unmended.log("the routes to pods of other nodes", err)
	n.keepSources(ctx, slices.SortedFunc(maps.Keys(peers), netip.Prefix.Compare))
}

// keepSources keeps the source addresses of packets from this node's pods to the ranges of others.
func (n *Network) keepSources(ctx context.Context, ranges []netip.Prefix) {
	if n.peers.written && slices.Equal(ranges, n.peers.ranges) {
		return
	}
	err := n.options.PodNetwork.KeepSources(ctx, ranges)
	n.unmended.log("the ranges of other nodes' pods", err)
	n.peers = peers{ranges: ranges, written: err == nil}
}

// PodsMode is how packets for pods get to other machines.
type PodsMode string

const (
	// PodsAuto routes them to machines that share a link with this one, and tunnels to others.
	PodsAuto PodsMode = "auto"
	// PodsVXLAN tunnels to all. Of two machines, both do if one has this mode.
	PodsVXLAN PodsMode = "vxlan"
	// PodsWireGuard encrypts them for all. Machines with another mode are not reached.
	PodsWireGuard PodsMode = "wireguard"
	// PodsAnnotation is the annotation of a Node with the mode of its machine.
	PodsAnnotation = "kindred.dev/pod-network"
)

// podsElsewhere is podsOf all other nodes. Simulated nodes send no packets.
func (n *Network) podsElsewhere() map[netip.Prefix]hop {
	nodes, _ := n.options.Informers.Core().V1().Nodes().Lister().List(labels.Everything()) // from the cache
	others := podsOf(nodes, func(node *v1.Node) bool { return node.Name != n.options.Node && !n.simulated(node) })
	own, err := n.options.Informers.Core().V1().Nodes().Lister().Get(n.options.Node)
	if err != nil {
		return others
	}
	for pods, other := range others {
		other.tunnelled = other.tunnelled || tunnels(own)
		other.sealed = other.sealed || seals(own)
		others[pods] = other
	}
	return others
}

// tunnels reports whether the machine of a node exchanges packets for pods through tunnels only.
func tunnels(node *v1.Node) bool { return node.Annotations[PodsAnnotation] == string(PodsVXLAN) }

// seals reports whether the machine of a node exchanges encrypted packets for pods only.
func seals(node *v1.Node) bool { return node.Annotations[PodsAnnotation] == string(PodsWireGuard) }

// hop is the machine to which packets for pods go next.
type hop struct {
	// address is that of the machine, of the IP family of its pods; the zero address if it has none.
	address netip.Addr
	// tunnelled is set if they go through a tunnel although the machine may share a link with this one.
	tunnelled bool
	// end is where the tunnel to the machine ends.
	end tunnelEnd
	// sealed is set if they are encrypted, for sealedEnd.
	sealed    bool
	sealedEnd sealedEnd
}

// podsOf returns the ranges of the pods of some nodes, with their machines.
func podsOf(nodes []*v1.Node, wanted func(*v1.Node) bool) map[netip.Prefix]hop {
	all := map[netip.Prefix]hop{}
	for _, node := range nodes {
		if !wanted(node) {
			continue
		}
		ranges := podRanges(node)
		to := hop{tunnelled: tunnels(node), end: tunnelEndOf(node, ranges), sealed: seals(node), sealedEnd: sealedEndOf(node, ranges)}
		for _, p := range ranges {
			to.address = machineAddress(node, ranges, p.Addr().Is4())
			all[p] = to
		}
	}
	return all
}

// tunnel returns the tunnel of this node; one that reaches nobody as long as the cluster or the node's address is not known.
func (n *Network) tunnel() tunnel {
	unknown := tunnel{link: tunnelLink(n.rules.Bridge)}
	cluster, err := n.options.Informers.Core().V1().Namespaces().Lister().Get(metav1.NamespaceSystem)
	if err != nil {
		return unknown
	}
	node, err := n.options.Informers.Core().V1().Nodes().Lister().Get(n.options.Node)
	if err != nil {
		return unknown
	}
	end := tunnelEndOf(node, n.rules.PodRanges)
	if !end.isKnown() {
		return unknown
	}
	return tunnel{link: tunnelLink(n.rules.Bridge), id: tunnelID(cluster.UID), own: end, ranges: n.rules.PodRanges}
}

// wireguard returns the encrypted interface of this node. It has no peers if the node has no key, or until the node's address is
// known.
func (n *Network) wireguard() wireguard {
	w := wireguard{link: wireguardLink(n.rules.Bridge), key: n.options.WireGuardKey, ranges: n.rules.PodRanges}
	if node, err := n.options.Informers.Core().V1().Nodes().Lister().Get(n.options.Node); err == nil {
		w.own = sealedEndOf(node, n.rules.PodRanges).machine
	}
	return w
}

// reachable returns the routes to machines of which an address is known.
func reachable(routes map[netip.Prefix]hop) map[netip.Prefix]hop {
	known := maps.Clone(routes)
	maps.DeleteFunc(known, func(_ netip.Prefix, via hop) bool {
		return !via.address.IsValid() && !via.end.isKnown() && !via.sealedEnd.isKnown()
	})
	return known
}

// machineAddress returns the address of a node's machine in an IP family; the zero address if it has none. It is the internal
// address, unless that is an address of the bridge of its pods, which is reached by the route only; then it is the external one.
func machineAddress(node *v1.Node, pods []netip.Prefix, ipv4 bool) netip.Addr {
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			address, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil || address.Is4() != ipv4 {
				continue
			}
			if !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Contains(address) }) {
				return address
			}
		}
	}
	return netip.Addr{}
}

// simulated reports whether a node runs no containers.
func (n *Network) simulated(node *v1.Node) bool { return hasLabel(node, n.options.Simulated) }

func hasLabel(node *v1.Node, key string) bool {
	_, ok := node.Labels[key]
	return ok
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
