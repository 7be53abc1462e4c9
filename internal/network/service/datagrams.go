// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Datagrams has the endpoints that may keep the flows of UDP packets to an address and port of a Service. These are all
// that serve, also those that new flows do not go to: an open flow is not moved to a nearer endpoint, or away from one
// that is terminating.
type Datagrams struct {
	// To has an invalid address if the port is open on all addresses of the node.
	To        netip.Addr
	Port      uint16
	Endpoints []netip.AddrPort
}

// DatagramsOf returns where the UDP packets of a Service go. Addresses without endpoints are left out.
func DatagramsOf(svc *v1.Service, endpointSlices []*discoveryv1.EndpointSlice, node Node) []Datagrams {
	if !routed(svc) {
		return nil
	}
	var all []Datagrams
	for _, f := range families {
		for _, port := range svc.Spec.Ports {
			if port.Protocol != v1.ProtocolUDP {
				continue
			}
			p := portRules{svc: svc, port: port, family: f, backends: choose(port, endpointSlices, f, node)}
			all = append(all, p.datagrams(f.addresses(svc.Spec.ClusterIPs))...)
		}
	}
	return all
}

func (p portRules) datagrams(clusterIPs []netip.Addr) []Datagrams {
	if len(clusterIPs) == 0 || len(p.backends.serving) == 0 {
		return nil
	}
	var all []Datagrams
	add := func(to netip.Addr, port int32) {
		if port != 0 {
			all = append(all, Datagrams{to, uint16(port), p.backends.serving})
		}
	}
	for _, ip := range slices.Concat(clusterIPs, p.externalIPs()) {
		add(ip, p.port.Port)
	}
	add(netip.Addr{}, p.port.NodePort)
	return all
}
