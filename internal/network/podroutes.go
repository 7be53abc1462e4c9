// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/links"
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
	plan, err := r.plan(present)
	errs = append(errs, err)
	for prefix, via := range plan.direct {
		errs = append(errs, r.add(&netlink.Route{Dst: ipNet(prefix), Gw: net.IP(via.AsSlice())}))
	}
	tunnelled, err := r.ensureTunnelled(plan.tunnelled)
	errs = append(errs, err)
	sealed, err := r.ensureSealed(plan.sealed)
	errs = append(errs, err)
	if len(plan.apart) > 0 && !maps.Equal(plan.apart, r.apart) {
		errs = append(errs, errApart(plan.apart))
	}
	r.apart = plan.apart
	return len(plan.direct) > 0 || tunnelled || sealed, errors.Join(errs...)
}

// ways are how packets get to ranges of pods.
type ways struct {
	// direct are the ranges without a route whose machines share a link with this one.
	direct    map[netip.Prefix]netip.Addr
	tunnelled map[netip.Prefix]tunnelEnd
	sealed    map[netip.Prefix]sealedEnd
	apart     map[netip.Prefix]hop
}

// plan decides the ways to all wanted ranges, given the routes that are present and right.
func (r *podRoutes) plan(present map[netip.Prefix]*netlink.Route) (ways, error) {
	w := ways{map[netip.Prefix]netip.Addr{}, map[netip.Prefix]tunnelEnd{}, map[netip.Prefix]sealedEnd{}, map[netip.Prefix]hop{}}
	var errs []error
	for prefix, via := range r.wanted {
		route, ok := present[prefix]
		switch {
		case via.sealed && r.wireguard.reaches(via.sealedEnd):
			w.sealed[prefix] = via.sealedEnd
		case via.sealed:
			w.apart[prefix] = via
		case ok && r.tunnel.carries(route, prefix):
			w.tunnelled[prefix] = via.end
		case !ok:
			errs = append(errs, r.planNew(w, prefix, via))
		}
	}
	return w, errors.Join(errs...)
}

// planNew decides the way to a range that has none.
func (r *podRoutes) planNew(w ways, prefix netip.Prefix, via hop) error {
	shared, err := isShared(via.address)
	switch {
	case err != nil:
		return fmt.Errorf("the route to pods in %s: %w", prefix, err)
	case shared && !via.tunnelled:
		w.direct[prefix] = via.address
	case r.tunnel.reaches(via.end):
		w.tunnelled[prefix] = via.end
	default:
		w.apart[prefix] = via
	}
	return nil
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
	link, restored, failed := r.wireguard.ensure()
	if link == nil {
		return false, failed
	}
	connected := r.wireguard.connect(nodes)
	added, err := r.addMissing(maps.Keys(nodes), func(prefix netip.Prefix) *netlink.Route {
		return &netlink.Route{Dst: ipNet(prefix), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
	})
	return restored || added, errors.Join(failed, connected, err)
}

// ensureTunnelled restores the tunnel to nodes and the routes to their pods; it removes the tunnel if no node needs it.
func (r *podRoutes) ensureTunnelled(nodes map[netip.Prefix]tunnelEnd) (restored bool, err error) {
	if len(nodes) == 0 {
		return false, r.tunnel.remove()
	}
	link, restored, failed := r.tunnel.ensure()
	if link == nil {
		return false, failed
	}
	connected := r.tunnel.connect(link, nodes)
	// The gateway is the tunnel's end on the node with the range.
	added, err := r.addMissing(maps.Keys(nodes), func(prefix netip.Prefix) *netlink.Route {
		return &netlink.Route{Dst: ipNet(prefix), Gw: net.IP(prefix.Masked().Addr().AsSlice()), LinkIndex: link.Attrs().Index, Flags: int(netlink.FLAG_ONLINK)}
	})
	return restored || added, errors.Join(failed, connected, err)
}

// addMissing adds the routes to ranges that have none, and reports whether there were such.
func (r *podRoutes) addMissing(prefixes iter.Seq[netip.Prefix], route func(netip.Prefix) *netlink.Route) (added bool, err error) {
	present, err := r.present()
	if err != nil {
		return false, err
	}
	var errs []error
	for prefix := range prefixes {
		if present[prefix] == nil {
			errs = append(errs, r.add(route(prefix)))
			added = true
		}
	}
	return added, errors.Join(errs...)
}

// present returns this cluster's routes.
func (r *podRoutes) present() (map[netip.Prefix]*netlink.Route, error) {
	all, err := links.Whole(func() ([]netlink.Route, error) {
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

// add adds a route of this cluster.
func (r *podRoutes) add(route *netlink.Route) error {
	route.Protocol, route.Priority = podRouteProtocol, r.metric
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the route to pods %s: %w", route, err)
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
