// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Node is the node whose kernel gets the rules.
type Node struct {
	Name string
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string
}

// backends are the endpoints of one port of a Service, in one family.
type backends struct {
	// cluster are those for the traffic policy Cluster, local those for Local.
	cluster, local []netip.AddrPort
	// serving are all that are ready, or terminate and still serve.
	serving []netip.AddrPort
	// here are the addresses of all endpoints on this node.
	here []netip.Addr
	// anywhere is set if there is a usable endpoint on any node.
	anywhere bool
}

// endpoint is an endpoint of a slice with one of its ports.
type endpoint struct {
	*discoveryv1.Endpoint
	address netip.AddrPort
}

// ready and draining follow the conditions of an endpoint, with the defaults that the API documents: unknown is
// ready, and serving if it is ready.
func (e endpoint) ready() bool { return ptr.Deref(e.Conditions.Ready, true) }

func (e endpoint) draining() bool {
	return ptr.Deref(e.Conditions.Serving, e.ready()) && ptr.Deref(e.Conditions.Terminating, false)
}

func (e endpoint) on(node Node) bool { return ptr.Deref(e.NodeName, "") == node.Name }

func (e endpoint) forNode(node Node) bool {
	return e.Hints != nil && slices.ContainsFunc(e.Hints.ForNodes, func(n discoveryv1.ForNode) bool { return n.Name == node.Name })
}

func (e endpoint) forZone(node Node) bool {
	return e.Hints != nil && slices.ContainsFunc(e.Hints.ForZones, func(z discoveryv1.ForZone) bool { return z.Name == node.Zone })
}

func (e endpoint) hasNodes() bool { return e.Hints != nil && len(e.Hints.ForNodes) > 0 }
func (e endpoint) hasZones() bool { return e.Hints != nil && len(e.Hints.ForZones) > 0 }

// choose returns the backends of a port. Both policies fall back to endpoints that terminate but still serve
// (KEP-1669), each for itself.
func choose(port v1.ServicePort, endpointSlices []*discoveryv1.EndpointSlice, f family, node Node) backends {
	all := endpointsOf(port, endpointSlices, f)
	var b backends
	ready := keep(all, endpoint.ready)
	b.cluster = addressesOf(nearest(ready, node))
	if len(ready) == 0 {
		b.cluster = addressesOf(keep(all, endpoint.draining))
	}
	b.serving = addressesOf(keep(all, func(e endpoint) bool { return e.ready() || e.draining() }))
	b.anywhere = len(b.cluster) > 0
	here := keep(all, func(e endpoint) bool { return e.on(node) })
	b.local = addressesOf(keep(here, endpoint.ready))
	if len(b.local) == 0 {
		b.local = addressesOf(keep(here, endpoint.draining))
	}
	for _, e := range here {
		b.here = append(b.here, e.address.Addr())
	}
	return b
}

// nearest returns the endpoints that hints name for this node, else those for its zone. Hints count only if all
// endpoints have them and one is for this node or zone; else all endpoints are returned (KEP-3015).
func nearest(ready []endpoint, node Node) []endpoint {
	for _, level := range []struct {
		hinted func(endpoint) bool
		mine   func(endpoint, Node) bool
	}{
		{endpoint.hasNodes, endpoint.forNode},
		{endpoint.hasZones, endpoint.forZone},
	} {
		if len(keep(ready, level.hinted)) < len(ready) {
			continue
		}
		if mine := keep(ready, func(e endpoint) bool { return level.mine(e, node) }); len(mine) > 0 {
			return mine
		}
	}
	return ready
}

// endpointsOf returns the endpoints for a port in slices of one family, sorted by address. An address that is
// in several slices, as while it moves, is there once, and ready if one of them says so.
func endpointsOf(port v1.ServicePort, endpointSlices []*discoveryv1.EndpointSlice, f family) []endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, slice := range endpointSlices {
		if slice.AddressType != f.slices {
			continue
		}
		at := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Name, "") == port.Name && ptr.Deref(p.Protocol, v1.ProtocolTCP) == port.Protocol && p.Port != nil
		})
		if at < 0 {
			continue
		}
		for i := range slice.Endpoints {
			e := endpoint{Endpoint: &slice.Endpoints[i]}
			// The API documents that all addresses of an endpoint are equivalent, and clients use the first.
			addresses := f.addresses(e.Addresses[:min(1, len(e.Addresses))])
			if len(addresses) == 0 {
				continue
			}
			e.address = netip.AddrPortFrom(addresses[0], uint16(*slice.Ports[at].Port))
			if other, twice := found[e.address]; !twice || !other.ready() {
				found[e.address] = e
			}
		}
	}
	all := make([]endpoint, 0, len(found))
	for _, e := range found {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.address.Compare(b.address) })
	return all
}

func keep(all []endpoint, wanted func(endpoint) bool) []endpoint {
	var kept []endpoint
	for _, e := range all {
		if wanted(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func addressesOf(all []endpoint) []netip.AddrPort {
	var addresses []netip.AddrPort
	for _, e := range all {
		addresses = append(addresses, e.address)
	}
	return addresses
}

// ReadyOn returns the number of addresses of ready endpoints on a node.
func ReadyOn(node Node, endpointSlices []*discoveryv1.EndpointSlice) int {
	found := map[string]bool{}
	for _, slice := range endpointSlices {
		for i := range slice.Endpoints {
			e := endpoint{Endpoint: &slice.Endpoints[i]}
			if e.on(node) && e.ready() && len(e.Addresses) > 0 {
				found[e.Addresses[0]] = true
			}
		}
	}
	return len(found)
}
