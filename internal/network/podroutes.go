// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/dump"
)

const (
	// podRouteProtocol marks the routes of this file; see /etc/iproute2/rt_protos.
	podRouteProtocol = 76
	// podRouteMetric is the least metric of these routes. Each cluster on the machine has a metric of its own, by which it knows
	// its routes.
	podRouteMetric = 1 << 16
)

// podRoutes are routes to the pods of other nodes: by way of nodes that share a link with this machine, through a tunnel to those
// behind routers, and encrypted to those that ask for it.
type podRoutes struct {
	// metric is that of this cluster's routes.
	metric int
	// wanted are the machines of nodes by the ranges of their pods.
	wanted map[netip.Prefix]hop
	// tunnel leads to nodes behind routers, once this node's address is known.
	tunnel tunnel
	// wireguard leads to nodes whose packets are encrypted.
	wireguard wireguard
	// apart are ranges of nodes to which none of them leads.
	apart map[netip.Prefix]hop
	// none is set if nothing is wanted, and nothing is left.
	none bool
}

// newPodRoutes returns the routes of the cluster with a bridge.
func newPodRoutes(bridge string) podRoutes {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(bridge)) // which cannot fail
	return podRoutes{
		metric: podRouteMetric + int(hash.Sum32()&(podRouteMetric-1)),
		tunnel: tunnel{link: tunnelLink(bridge)}, wireguard: wireguard{link: wireguardLink(bridge)},
	}
}

// set replaces the wanted routes.
func (r *podRoutes) set(wanted map[netip.Prefix]hop) { r.wanted = wanted }

// ensure adds the wanted routes that are missing, with the tunnel if one needs it, and removes those that are not wanted. It reports
// whether one was missing.
func (r *podRoutes) ensure() (restored bool, err error) {
	if r.none && len(r.wanted) == 0 && r.wireguard.key == nil {
		return false, nil
	}
	defer func() { r.none = err == nil && len(r.wanted) == 0 }()
	present, err := r.present()
	if err != nil {
		return false, err
	}
	var errs []error
	for prefix, route := range present {
		if via, wanted := r.wanted[prefix]; !wanted || !r.leads(route, prefix, via) {
			errs = append(errs, remove(route))
			delete(present, prefix)
		}
	}
	tunnelled, sealed, apart := map[netip.Prefix]tunnelEnd{}, map[netip.Prefix]sealedEnd{}, map[netip.Prefix]hop{}
	for prefix, via := range r.wanted {
		if via.sealed {
			if r.wireguard.reaches(via.sealedEnd) {
				sealed[prefix] = via.sealedEnd
			} else {
				apart[prefix] = via
			}
			continue
		}
		if route, ok := present[prefix]; ok {
			if r.tunnel.carries(route, prefix) {
				tunnelled[prefix] = via.end
			}
			continue
		}
		shared, err := isShared(via.address)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the route to pods in %s: %w", prefix, err))
		case shared && !via.tunnelled:
			errs = append(errs, r.add(prefix, via.address))
			restored = true
		case r.tunnel.reaches(via.end):
			tunnelled[prefix] = via.end
		default:
			apart[prefix] = via
		}
	}
	wasTunnelled, err := r.ensureTunnelled(tunnelled)
	errs = append(errs, err)
	wasSealed, err := r.ensureSealed(sealed)
	errs = append(errs, err)
	if len(apart) > 0 && !maps.Equal(apart, r.apart) {
		errs = append(errs, errApart(apart))
	}
	r.apart = apart
	return restored || wasTunnelled || wasSealed, errors.Join(errs...)
}

// leads reports whether a route leads to the machine of pods as it should.
func (r *podRoutes) leads(route *netlink.Route, prefix netip.Prefix, via hop) bool {
	if via.sealed {
		return r.wireguard.reaches(via.sealedEnd) && r.wireguard.carries(route)
	}
	direct := via.address.IsValid() && gateway(route) == via.address && !via.tunnelled
	return direct || r.tunnel.carries(route, prefix)
}

// errApart says which pods cannot be reached, and why.
func errApart(apart map[netip.Prefix]hop) error {
	var sealed, others []netip.Prefix
	for prefix, via := range apart {
		if via.sealed {
			sealed = append(sealed, prefix)
		} else {
			others = append(others, prefix)
		}
	}
	var errs []error
	if len(sealed) > 0 {
		slices.SortFunc(sealed, netip.Prefix.Compare)
		errs = append(errs, fmt.Errorf("packets for pods in %v must be encrypted, but their nodes or this one have no key of WireGuard, so that the pods cannot be reached; "+
			"start all nodes with --pod-network wireguard", sealed))
	}
	if len(others) > 0 {
		slices.SortFunc(others, netip.Prefix.Compare)
		errs = append(errs, fmt.Errorf("the nodes with pods in %v share no link with this machine, and there is no tunnel to them, so that their pods cannot be reached", others))
	}
	return errors.Join(errs...)
}

// ensureSealed restores the encrypted interface and the routes to pods of nodes. It removes the interface from a machine that no longer
// encrypts; one that does keeps it, because it may be that of a process.
func (r *podRoutes) ensureSealed(nodes map[netip.Prefix]sealedEnd) (restored bool, err error) {
	if r.wireguard.key == nil {
		return false, r.wireguard.remove()
	}
	if len(nodes) == 0 && !r.wireguard.exists() {
		return false, nil
	}
	link, restored, err := r.wireguard.ensure()
	if err != nil {
		return false, err
	}
	errs := []error{r.wireguard.connect(nodes)}
	present, err := r.present()
	if err != nil {
		return false, err
	}
	for prefix := range nodes {
		if present[prefix] == nil {
			errs = append(errs, r.addSealed(prefix, link))
			restored = true
		}
	}
	return restored, errors.Join(errs...)
}

// addSealed adds a route through the encrypted interface.
func (r *podRoutes) addSealed(prefix netip.Prefix, link netlink.Link) error {
	route := &netlink.Route{Dst: ipNet(prefix), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Protocol: podRouteProtocol, Priority: r.metric}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the route to pods in %s through %s: %w", prefix, r.wireguard.link, err)
	}
	return nil
}

// ensureTunnelled restores the tunnel to nodes and the routes to their pods; it removes the tunnel if no node needs it.
func (r *podRoutes) ensureTunnelled(nodes map[netip.Prefix]tunnelEnd) (restored bool, err error) {
	if len(nodes) == 0 {
		return false, r.tunnel.remove()
	}
	link, restored, err := r.tunnel.ensure()
	if err != nil {
		return false, err
	}
	errs := []error{r.tunnel.connect(link, nodes)}
	present, err := r.present()
	if err != nil {
		return false, err
	}
	for prefix := range nodes {
		if present[prefix] == nil {
			errs = append(errs, r.addTunnelled(prefix, link))
			restored = true
		}
	}
	return restored, errors.Join(errs...)
}

// addTunnelled adds a route through the tunnel, to the end on the node with the range.
func (r *podRoutes) addTunnelled(prefix netip.Prefix, link netlink.Link) error {
	route := &netlink.Route{
		Dst: ipNet(prefix), Gw: net.IP(prefix.Masked().Addr().AsSlice()), LinkIndex: link.Attrs().Index, Flags: int(netlink.FLAG_ONLINK),
		Protocol: podRouteProtocol, Priority: r.metric,
	}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the route to pods in %s through %s: %w", prefix, r.tunnel.link, err)
	}
	return nil
}

// present returns this cluster's routes.
func (r *podRoutes) present() (map[netip.Prefix]*netlink.Route, error) {
	all, err := dump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: podRouteProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, err
	}
	own := map[netip.Prefix]*netlink.Route{}
	for i := range all {
		if all[i].Priority == r.metric && all[i].Dst != nil {
			own[prefixOf(all[i].Dst)] = &all[i]
		}
	}
	return own, nil
}

func (r *podRoutes) add(prefix netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{Dst: ipNet(prefix), Gw: net.IP(via.AsSlice()), Protocol: podRouteProtocol, Priority: r.metric}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the route to pods in %s by way of %s: %w", prefix, via, err)
	}
	return nil
}

// removeAll removes the routes of this cluster, and its interfaces to other nodes.
func (r *podRoutes) removeAll() error {
	r.wanted = nil
	_, err := r.ensure()
	return err
}

func remove(route *netlink.Route) error {
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s: %w", route.Dst, err)
	}
	return nil
}

func gateway(route *netlink.Route) netip.Addr {
	via, _ := netip.AddrFromSlice(route.Gw)
	return via.Unmap()
}

func prefixOf(n *net.IPNet) netip.Prefix {
	address, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits)
}

// isShared reports whether this machine reaches an address without a gateway.
func isShared(address netip.Addr) (bool, error) {
	if !address.IsValid() {
		return false, nil
	}
	routes, err := netlink.RouteGet(net.IP(address.AsSlice()))
	if err != nil {
		return false, err
	}
	for _, route := range routes {
		if route.Gw != nil || route.Type == unix.RTN_LOCAL {
			return false, nil
		}
	}
	return true, nil
}
