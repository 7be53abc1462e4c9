// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// schemaVersion is the version of the DNS specification, which the TXT record dns-version.<zone> has.
const schemaVersion = "1.1.0"

// zone finds the records of the cluster's names.
type zone struct {
	// origin is the cluster's domain, in lower case and with a final dot.
	origin  string
	records *records
}

// found has the records of the zone at a name.
type found struct {
	// exists distinguishes a name without records (NODATA) from none (NXDOMAIN).
	exists  bool
	targets []target
	// alias is the target of a CNAME record.
	alias string
	// text is that of a TXT record.
	text string
	// server is set at the name of the zone itself.
	server bool
}

// target is an address and a port at a name.
type target struct {
	name    string
	address netip.Addr
	// port is 0 if the endpoint has no ports.
	port uint16
}

// find returns what the zone has at the labels below its origin.
func (z *zone) find(labels []string) found {
	switch strings.Join(labels, ".") {
	case "":
		return found{exists: true, server: true}
	case "dns-version":
		return found{exists: true, text: schemaVersion}
	case "ns.dns":
		return found{exists: true, targets: z.server()}
	}
	n, ok := parseName(labels)
	switch {
	case !ok:
		return found{}
	case n.namespace == "":
		return found{exists: true}
	case !z.records.hasNamespace(n.namespace):
		return found{}
	case n.object == "":
		return found{exists: true}
	case n.kind == podsLabel:
		return findPod(n)
	}
	return z.findService(n)
}

// findPod returns the address that the name of a pod contains, whether there is such a pod or not: the
// mode "insecure" of CoreDNS, which is the one that kubeadm configures.
func findPod(n name) found {
	address, ok := podAddress(n.object)
	if !ok {
		return found{}
	}
	return found{exists: true, targets: []target{{address: address}}}
}

func (z *zone) findService(n name) found {
	service := z.records.service(n.namespace, n.object)
	switch {
	case service == nil:
		return found{}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return findAlias(n, service)
	case n.endpoint != "" || service.Spec.ClusterIP == corev1.ClusterIPNone:
		return z.findEndpoints(n)
	}
	return z.findClusterIPs(n, service)
}

// findAlias returns the CNAME of a Service of type ExternalName. One that names an address instead of a
// host has no records, as in CoreDNS.
func findAlias(n name, service *corev1.Service) found {
	_, err := netip.ParseAddr(service.Spec.ExternalName)
	if n.endpoint != "" || n.port != "" || err == nil {
		return found{}
	}
	return found{exists: true, alias: dns.CanonicalName(service.Spec.ExternalName)}
}

func (z *zone) findClusterIPs(n name, service *corev1.Service) (f found) {
	host := z.serviceName(service.Namespace, service.Name)
	for _, port := range service.Spec.Ports {
		if !n.hasPort(port.Name, port.Protocol) {
			continue
		}
		f.exists = true
		for _, s := range service.Spec.ClusterIPs {
			if address, err := netip.ParseAddr(s); err == nil {
				f.targets = append(f.targets, target{host, address, uint16(port.Port)})
			}
		}
	}
	return f
}

// findEndpoints returns the ready endpoints of a Service. A headless Service without any does not exist:
// section 2.4 of the specification.
func (z *zone) findEndpoints(n name) (f found) {
	host := z.serviceName(n.namespace, n.object)
	for _, slice := range z.records.slicesOf(n.namespace, n.object) {
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			if !isReady(endpoint) {
				continue
			}
			for _, s := range endpoint.Addresses {
				address, err := netip.ParseAddr(s)
				if err != nil {
					continue
				}
				label := hostLabel(endpoint, address)
				if n.endpoint != "" && !strings.EqualFold(n.endpoint, label) {
					continue
				}
				f.targets = append(f.targets, n.ports(target{name: label + "." + host, address: address}, slice.Ports)...)
			}
		}
	}
	f.exists = len(f.targets) > 0
	return f
}

// ports returns a target for each port of a slice that the name is about.
func (n name) ports(t target, ports []discoveryv1.EndpointPort) (targets []target) {
	if len(ports) == 0 && n.port == "" {
		return []target{t}
	}
	for _, port := range ports {
		if n.hasPort(ptr.Deref(port.Name, ""), ptr.Deref(port.Protocol, corev1.ProtocolTCP)) {
			t.port = uint16(ptr.Deref(port.Port, 0))
			targets = append(targets, t)
		}
	}
	return targets
}

// hasPort reports whether the name is about a port: the one that it names, or all.
func (n name) hasPort(port string, protocol corev1.Protocol) bool {
	return n.port == "" && n.protocol == "" || strings.EqualFold(n.port, port) && strings.EqualFold(n.protocol, string(protocol))
}

func (z *zone) serviceName(namespace, service string) string {
	return service + "." + namespace + "." + servicesLabel + "." + z.origin
}

// server returns the addresses of the Service of the DNS servers.
func (z *zone) server() []target {
	service := z.records.service(Namespace, ServiceName)
	if service == nil {
		return nil
	}
	return z.findClusterIPs(name{}, service).targets
}

// hosts returns the names of an address: that of the Service whose ClusterIP it is, or those of its
// endpoints.
func (z *zone) hosts(address netip.Addr) (names []string) {
	services, endpoints := z.records.at(address)
	for _, service := range services {
		return []string{z.serviceName(service.Namespace, service.Name)}
	}
	for _, slice := range endpoints {
		service := z.serviceName(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			if isReady(endpoint) && contains(endpoint.Addresses, address) {
				names = append(names, hostLabel(endpoint, address)+"."+service)
			}
		}
	}
	return names
}

func contains(addresses []string, address netip.Addr) bool {
	for _, s := range addresses {
		if a, err := netip.ParseAddr(s); err == nil && a == address {
			return true
		}
	}
	return false
}
