// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Datagrams has the endpoints that may get UDP packets to an address and port of a Service.
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
	if len(clusterIPs) == 0 {
		return nil
	}
	var all []Datagrams
	add := func(to netip.Addr, port int32, endpoints []netip.AddrPort) {
		if len(endpoints) > 0 && port != 0 {
			all = append(all, Datagrams{to, uint16(port), endpoints})
		}
	}
	for _, ip := range clusterIPs {
		add(ip, p.port.Port, p.internal().endpoints)
	}
	// Sources in the cluster may use all endpoints, whatever the external policy is.
	outside := slices.Concat(p.target(p.externalLocal()).endpoints, p.target(false).endpoints)
	for _, ip := range p.externalIPs() {
		add(ip, p.port.Port, outside)
	}
	add(netip.Addr{}, p.port.NodePort, outside)
	return all
}
