// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/service"
)

// announcedSource is the source of the rules for announced addresses. It has no slash, unlike those of Services.
const announcedSource = "announced"

// announce makes the machine answer ARP and NDP for the addresses of pools that this node is elected for, and stop that
// for the others. Each is added to the interface of Services. For the IPv4 addresses of all its interfaces the kernel
// answers on each of them; for IPv6 addresses of other interfaces it answers as a proxy. The kernel is asked what it has only
// if the addresses differ from those of the last time, and for a check: it lists the addresses of all pods' interfaces.
func (n *Network) announce(check bool) {
	if n.routes.link == "" {
		return
	}
	wanted, gateways := n.elected(), n.gatewayAddresses()
	var rules nft.Fragment
	for _, a := range wanted {
		if gateways[a] {
			continue // the reverse proxy of the machine answers there
		}
		set := "balancer-ips4"
		if a.Is6() {
			set = "balancer-ips6"
		}
		rules.AddElement(set, a.String(), "")
	}
	n.table.Put(announcedSource, rules)
	if n.announced != nil && slices.Equal(wanted, *n.announced) && !(check && len(wanted) > 0) {
		return
	}
	if err := errors.Join(n.routes.setAddresses(wanted), setProxies(wanted, n.options.Pools)); err != nil {
		n.announced = nil
		klog.ErrorS(err, "Announcing the addresses of load balancers; it is tried again")
		return
	}
	n.announced = &wanted
}

// announcer is the annotation of a Service that holds the address of a Gateway with the node that serves it.
const announcer = "kindred.dev/announced-by"

// gatewayAddresses returns the addresses that are those of Gateways.
func (n *Network) gatewayAddresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, svc := range n.balancers {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(in.IP); err == nil && service.OfGateway(svc) {
				all[a] = true
			}
		}
	}
	return all
}

// elected returns the addresses of pools that this node announces.
func (n *Network) elected() []netip.Addr {
	if len(n.options.Pools) == 0 || len(n.balancers) == 0 {
		return nil
	}
	nodes, _ := n.options.Informers.Core().V1().Nodes().Lister().List(labels.Everything()) // from the cache
	var candidates []string
	pools := map[string][]netip.Prefix{}
	for _, node := range nodes {
		pools[node.Name] = poolsOf(node)
		if !n.simulated(node) && announces(node) {
			candidates = append(candidates, node.Name)
		}
	}
	var all []netip.Addr
	for key, svc := range n.balancers {
		able := candidates
		if service.OfGateway(svc) {
			able = []string{svc.Annotations[announcer]}
		}
		if svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
			endpointSlices := n.slicesOf(key)
			if with := keepNodes(candidates, func(name string) bool { return service.ReadyOn(service.Node{Name: name}, endpointSlices) > 0 }); len(with) > 0 {
				able = with
			}
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			a, err := netip.ParseAddr(in.IP)
			if err != nil || !inPools(n.options.Pools, a) {
				continue
			}
			if elect(a, keepNodes(able, func(name string) bool { return inPools(pools[name], a) })) == n.options.Node {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// PoolsAnnotation is the annotation of a Node with the pools whose addresses its machine can announce, separated by commas. Machines on
// different links have different ones.
const PoolsAnnotation = "kindred.dev/load-balancer-pools"

// PoolsText returns the value of PoolsAnnotation for some pools.
func PoolsText(pools []netip.Prefix) string {
	all := make([]string, len(pools))
	for i, p := range pools {
		all[i] = p.String()
	}
	return strings.Join(all, ",")
}

// poolsOf returns the pools that the machine of a node can announce.
func poolsOf(node *v1.Node) (pools []netip.Prefix) {
	for text := range strings.SplitSeq(node.Annotations[PoolsAnnotation], ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			pools = append(pools, p)
		}
	}
	return pools
}

// announces reports whether a node may announce addresses.
func announces(node *v1.Node) bool {
	if _, excluded := node.Labels[v1.LabelNodeExcludeBalancers]; excluded {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

func keepNodes(names []string, able func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !able(name) })
}

func inPools(pools []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(a) })
}

// elect returns the node that announces an address; "" if there is none. All nodes that see the same candidates
// elect the same one, and a candidate that goes moves only its own addresses (rendezvous hashing).
func elect(a netip.Addr, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	score := func(name string) uint64 {
		sum := sha256.Sum256([]byte(a.String() + " " + name))
		return binary.BigEndian.Uint64(sum[:])
	}
	return slices.MaxFunc(candidates, func(x, y string) int {
		return cmp.Or(cmp.Compare(score(x), score(y)), cmp.Compare(x, y))
	})
}

// setAddresses makes the addresses of the interface of Services those that are wanted, and tells the network about new
// ones.
func (r routes) setAddresses(wanted []netip.Addr) error {
	link, err := netlink.LinkByName(r.link)
	if err != nil {
		return err
	}
	has := map[netip.Addr]bool{}
	present, err := addressesOf(link)
	if err != nil {
		return err
	}
	for _, a := range present {
		if has[a] = true; slices.Contains(wanted, a) {
			continue
		}
		if err := netlink.AddrDel(link, hostAddress(a)); err != nil {
			return fmt.Errorf("removing address %s: %w", a, err)
		}
	}
	for _, a := range wanted {
		if has[a] {
			continue
		}
		if err := netlink.AddrReplace(link, hostAddress(a)); err != nil {
			return fmt.Errorf("adding address %s: %w", a, err)
		}
		if err := tellNeighbours(a); err != nil {
			klog.ErrorS(err, "Neighbours may send packets to the former node of an address for a while", "address", a)
		}
	}
	return nil
}

// addressesOf returns the addresses of an interface, without link-local ones.
func addressesOf(link netlink.Link) ([]netip.Addr, error) {
	present, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, p := range present {
		if a, ok := netip.AddrFromSlice(p.IP); ok && !a.IsLinkLocalUnicast() {
			all = append(all, a.Unmap())
		}
	}
	return all, nil
}

// hostAddress returns an address without a network.
func hostAddress(a netip.Addr) *netlink.Addr {
	flags := unix.IFA_F_NOPREFIXROUTE
	if a.Is6() {
		flags |= unix.IFA_F_NODAD // the interface has no neighbours who could have it
	}
	return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())), Flags: flags}
}
