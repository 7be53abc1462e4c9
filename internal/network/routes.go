// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/links"
)

// routes route the ranges of Services on a machine. Packets of the machine itself are translated after they have
// been routed, so they need a route, which gives them a source address that pods can answer.
//
// The routes lead to an interface of their own, a bridge without ports. On the bridge of the pods, the kernel would
// tell pods that call an unknown Service to look for it on their own network (an ICMP redirect). Nothing is
// ever sent there: what is not translated is rejected or dropped first.
type routes struct {
	// link is the name of that interface; "" if the node has no network of Kindred's.
	link string
	// bridge is the bridge of the pods; "" if it is not known.
	bridge string
	// pods are the ranges of its pods, whose first addresses are those of the machine.
	pods []netip.Prefix
}

// servicesLink returns the name of the interface to which Services are routed. Names have at most 15 bytes.
func servicesLink(bridge string) string {
	if bridge == "" {
		return ""
	}
	return bridge + "-svc"
}

// ensure routes the ranges of Services of the IP families that pods have. It reports whether a route was missing, and
// returns the error of each range whose route the kernel refuses.
func (r routes) ensure(ranges []netip.Prefix) (restored bool, refused map[netip.Prefix]error, err error) {
	if r.link == "" {
		return false, nil, nil
	}
	if err := openLoopback(r.bridge); err != nil {
		return false, nil, err
	}
	link, err := r.ensureLink()
	if err != nil {
		return false, nil, fmt.Errorf("network interface %s: %w", r.link, err)
	}
	present, err := links.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, nil, err
	}
	has := map[string]bool{}
	for _, route := range present {
		if route.Dst == nil {
			continue
		}
		has[route.Dst.String()] = true
		if err := removeUnwanted(&route, ranges); err != nil {
			return false, nil, err
		}
	}
	refused = map[netip.Prefix]error{}
	for _, prefix := range ranges {
		source, ok := r.source(prefix)
		if !ok || has[prefix.String()] {
			continue
		}
		switch err := netlink.RouteAdd(routeTo(prefix, source, link)); {
		case err == nil:
			restored = true
		case !errors.Is(err, fs.ErrExist): // else it is routed to another cluster on the machine, which keeps it
			refused[prefix] = err
		}
	}
	return restored, refused, nil
}

// removeUnwanted removes a route to a range that Services no longer have. The kernel's own routes, to the interface's
// link-local addresses, stay; so do all before the ranges are known.
func removeUnwanted(route *netlink.Route, ranges []netip.Prefix) error {
	wanted := slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.String() == route.Dst.String() })
	if wanted || len(ranges) == 0 || route.Protocol != unix.RTPROT_BOOT {
		return nil
	}
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s, which is no range of Services any more: %w", route.Dst, err)
	}
	return nil
}

// routeTo returns the route to a range of Services.
func routeTo(prefix netip.Prefix, source netip.Addr, link netlink.Link) *netlink.Route {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(prefix), Src: net.IP(source.AsSlice()), Protocol: unix.RTPROT_BOOT}
	if prefix.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

// ensureRoutes routes the ranges of Services, and reports whether a route was missing. A range whose route the kernel
// refuses fails alone, with an event on its ServiceCIDR.
func (n *Network) ensureRoutes() (restored bool, err error) {
	if n.routes.link != "" {
		n.unmended.log("the routes that reject packets to Services", n.rejects.ensure(n.ranges))
	}
	restored, refused, err := n.routes.ensure(n.ranges)
	if err != nil {
		return false, err
	}
	for prefix, err := range refused {
		if n.unrouted[prefix] == nil || n.unrouted[prefix].Error() != err.Error() {
			klog.ErrorS(err, "The kernel refuses the route to a range of Services; it is tried again every two seconds", "range", prefix)
			n.reportRoute(prefix, err)
		}
	}
	n.unrouted = refused
	return restored, nil
}

// source returns the address of the machine that its packets to Services of the range have, so that pods can answer.
func (r routes) source(services netip.Prefix) (netip.Addr, bool) {
	for _, p := range r.pods {
		if p.Addr().Is4() == services.Addr().Is4() {
			return p.Masked().Addr().Next(), true
		}
	}
	return netip.Addr{}, false
}

// Taken reports whether the machine routes a range to another interface already, such as that of another cluster.
func (n *Network) Taken(prefix netip.Prefix) (bool, error) {
	dst := ipNet(prefix)
	routes, err := links.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
	})
	if err != nil {
		return false, err
	}
	link, err := netlink.LinkByName(n.routes.link)
	for _, route := range routes {
		if route.Protocol == rejectProtocol {
			continue
		}
		if err != nil || route.LinkIndex != link.Attrs().Index {
			return true, nil
		}
	}
	return false, nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(prefix.Masked().Addr().AsSlice()), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

func (r routes) ensureLink() (netlink.Link, error) {
	link, err := netlink.LinkByName(r.link)
	if err == nil {
		return link, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = r.link
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if link, err = netlink.LinkByName(r.link); err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// remove removes the interface, and with it the routes and the announced addresses.
func (r routes) remove() error {
	link, err := netlink.LinkByName(r.link)
	var absent netlink.LinkNotFoundError
	if r.link == "" || errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return err
	}
	announced, err := addressesOf(link)
	if len(announced) > 0 {
		err = errors.Join(err, stopProxies(func(a netip.Addr) bool { return slices.Contains(announced, a) }))
	}
	return errors.Join(err, netlink.LinkDel(link))
}

// openLoopback lets packets to node ports on 127.0.0.1 leave the machine's loopback for a pod. The rules keep
// pods from reaching the loopback by it.
func openLoopback(bridge string) error {
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+bridge+"/route_localnet", []byte("1"), 0o644)
}
