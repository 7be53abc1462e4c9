// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Endpoints returns the addresses that serve a port of a Service: the ready endpoints, or if there are none those that
// still serve while they terminate, as kube-proxy does. Of a dual-stack Service they are those of its first family.
func Endpoints(svc *v1.Service, port int32, all []*discoveryv1.EndpointSlice) []netip.AddrPort {
	at := slices.IndexFunc(svc.Spec.Ports, func(p v1.ServicePort) bool {
		return p.Port == port && (p.Protocol == v1.ProtocolTCP || p.Protocol == "")
	})
	if at < 0 {
		return nil
	}
	var ready, terminating []netip.AddrPort
	for _, slice := range all {
		number, ok := targetPort(slice, svc.Spec.Ports[at].Name)
		if !ok || !ofFirstFamily(svc, slice) {
			continue
		}
		for _, e := range slice.Endpoints {
			switch {
			case e.Conditions.Ready == nil || *e.Conditions.Ready:
				ready = appendAddress(ready, e, number)
			case isTrue(e.Conditions.Serving) && isTrue(e.Conditions.Terminating):
				terminating = appendAddress(terminating, e, number)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func isTrue(b *bool) bool { return b != nil && *b }

// appendAddress appends the first address of an endpoint; the API leaves the meaning of further ones open.
func appendAddress(to []netip.AddrPort, e discoveryv1.Endpoint, port uint16) []netip.AddrPort {
	if len(e.Addresses) == 0 {
		return to
	}
	address, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return to
	}
	return append(to, netip.AddrPortFrom(address, port))
}

func ofFirstFamily(svc *v1.Service, slice *discoveryv1.EndpointSlice) bool {
	if len(svc.Spec.IPFamilies) == 0 {
		return slice.AddressType != discoveryv1.AddressTypeFQDN
	}
	return string(slice.AddressType) == string(svc.Spec.IPFamilies[0])
}

// targetPort returns the number that a port of the Service has at the endpoints of a slice.
func targetPort(slice *discoveryv1.EndpointSlice, name string) (uint16, bool) {
	for _, p := range slice.Ports {
		if (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) && p.Port != nil && (p.Protocol == nil || *p.Protocol == v1.ProtocolTCP) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}
