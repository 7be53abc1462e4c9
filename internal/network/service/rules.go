// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// proxyNameLabel leaves a Service to another proxy.
const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Rules returns the rules of a Service with the given EndpointSlices. They need those of [Base].
func Rules(svc *v1.Service, endpointSlices []*discoveryv1.EndpointSlice, node Node) nft.Fragment {
	var rules nft.Fragment
	if !routed(svc) {
		return rules
	}
	for _, f := range families {
		clusterIPs := f.addresses(svc.Spec.ClusterIPs)
		for _, ip := range clusterIPs {
			rules.AddElement(f.name("cluster-ips"), ip.String(), "")
		}
		if len(clusterIPs) == 0 {
			continue
		}
		for _, port := range svc.Spec.Ports {
			if port.Protocol == "" {
				port.Protocol = v1.ProtocolTCP
			}
			p := portRules{svc: svc, port: port, family: f, backends: choose(port, endpointSlices, f, node), rules: &rules}
			p.add(clusterIPs)
		}
	}
	return rules
}

// routed reports whether packets are routed to a Service's endpoints.
func routed(svc *v1.Service) bool {
	_, other := svc.Labels[proxyNameLabel]
	return !other && svc.Spec.Type != v1.ServiceTypeExternalName && svc.Spec.ClusterIP != v1.ClusterIPNone && svc.Spec.ClusterIP != ""
}

// portRules adds the rules of one port of a Service in one family.
type portRules struct {
	svc      *v1.Service
	port     v1.ServicePort
	family   family
	backends backends
	rules    *nft.Fragment
}

func (p portRules) add(clusterIPs []netip.Addr) {
	for _, address := range p.backends.here {
		p.rules.AddElement(p.family.name("hairpin"), fmt.Sprintf("%s . %[1]s", address), "")
	}
	for _, ip := range clusterIPs {
		p.address(ip, p.internal(), false)
	}
	for _, ip := range p.externalIPs() {
		p.external(ip)
	}
	p.nodePort()
	p.firewall()
}

// target has the endpoints for packets to an address of a Service.
type target struct {
	local     bool
	endpoints []netip.AddrPort
}

func (p portRules) target(local bool) target {
	if local {
		return target{true, p.backends.local}
	}
	return target{false, p.backends.cluster}
}

// internal returns the target of packets to ClusterIPs.
func (p portRules) internal() target {
	return p.target(ptr.Deref(p.svc.Spec.InternalTrafficPolicy, v1.ServiceInternalTrafficPolicyCluster) == v1.ServiceInternalTrafficPolicyLocal)
}

func (p portRules) externalLocal() bool {
	return p.svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
}

// gatewayClass is the class of Services that only hold the address of a Gateway. Its listeners are those of the reverse
// proxy of package ingress, on this machine.
const gatewayClass = "kindred.dev/gateway"

// OfGateway reports whether a Service holds the address of a Gateway.
func OfGateway(svc *v1.Service) bool {
	return ptr.Deref(svc.Spec.LoadBalancerClass, "") == gatewayClass
}

// externalIPs returns the Service's addresses outside of the cluster. Addresses of the mode Proxy are those of a
// load balancer that forwards to node ports.
func (p portRules) externalIPs() []netip.Addr {
	return append(p.family.addresses(p.svc.Spec.ExternalIPs), p.balancerIPs()...)
}

// balancerIPs returns the addresses of the load balancer. The packets to those of a Gateway are left to the reverse
// proxy.
func (p portRules) balancerIPs() []netip.Addr {
	if p.svc.Spec.Type != v1.ServiceTypeLoadBalancer || OfGateway(p.svc) {
		return nil
	}
	var list []string
	for _, in := range p.svc.Status.LoadBalancer.Ingress {
		if ptr.Deref(in.IPMode, v1.LoadBalancerIPModeVIP) == v1.LoadBalancerIPModeVIP {
			list = append(list, in.IP)
		}
	}
	return p.family.addresses(list)
}

// external adds an address outside of the cluster.
func (p portRules) external(ip netip.Addr) {
	if !p.externalLocal() {
		p.address(ip, p.target(false), true)
		return
	}
	p.address(ip, p.target(true), false)
	if cluster := p.target(false); len(cluster.endpoints) > 0 {
		key := addressKey(ip, p.port.Protocol, p.port.Port)
		p.rules.AddElement(p.family.name("internal"), key, p.dispatch(atAddress, key, cluster, false))
	}
}

// address adds the port on one address of the Service.
func (p portRules) address(ip netip.Addr, to target, masquerade bool) {
	key := addressKey(ip, p.port.Protocol, p.port.Port)
	if len(to.endpoints) == 0 {
		p.rules.AddElement(p.family.name("no-endpoints"), key, p.refusal())
		return
	}
	p.rules.AddElement(p.family.name("entries"), key, p.dispatch(atAddress, key, to, masquerade))
}

// nodePort adds the node port, which is open on all addresses of the node.
func (p portRules) nodePort() {
	if p.port.NodePort == 0 {
		return
	}
	key := portKey(p.port.Protocol, p.port.NodePort)
	to := p.target(p.externalLocal())
	if len(to.endpoints) == 0 {
		p.rules.AddElement(p.family.name("no-endpoint-nodeports"), key, p.refusal())
	} else {
		p.rules.AddElement(p.family.name("nodeports"), key, p.dispatch(atNodePort, key, to, !p.externalLocal()))
	}
	if cluster := p.target(false); p.externalLocal() && len(cluster.endpoints) > 0 {
		p.rules.AddElement(p.family.name("internal-nodeports"), key, p.dispatch(atNodePort, key, cluster, false))
	}
}

// refusal is the verdict for packets that have no endpoint. If another node has endpoints, the packet came here
// by mistake, and the sender should try again.
func (p portRules) refusal() string {
	if p.backends.anywhere {
		return "drop"
	}
	return "goto refuse"
}

// dispatch adds what distributes packets with a key among endpoints, and returns the verdict that leads there.
func (p portRules) dispatch(at place, key string, to target, masquerade bool) string {
	chain := ""
	if p.svc.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		chain = p.affinity(to)
	} else {
		chain = p.pick(at, key, to)
	}
	if masquerade {
		chain = p.masquerading(chain)
	}
	return "goto " + chain
}

// place tells how packets arrive: at an address of the Service, or at a port of the node. It decides which of the
// packet's fields identify the Service's port.
type place struct{ name, fields string }

var (
	atAddress  = place{"", "%s daddr . meta l4proto . th dport"}
	atNodePort = place{"nodeport-", "meta l4proto . th dport"}
)

// pick adds the endpoints of a target and what picks one of them, and returns the chain.
func (p portRules) pick(at place, key string, to target) string {
	kind := at.name
	if to.local {
		kind += "local-"
	}
	var draw []string
	for i, e := range to.endpoints {
		draw = append(draw, fmt.Sprintf("%d : goto %s", i, p.endpoint(at, kind, i)))
		p.rules.AddElement(p.family.nth(kind+"endpoints", i), key, fmt.Sprintf("%s . %d", e.Addr(), e.Port()))
	}
	if len(draw) == 1 {
		return p.family.nth(kind+"endpoint", 0)
	}
	chain := p.family.nth(kind+"pick", len(draw))
	p.rules.AddChain(chain, nft.Chain{Rules: []string{
		fmt.Sprintf("numgen random mod %d vmap { %s }", len(draw), strings.Join(draw, ", ")),
	}})
	return chain
}

// endpoint adds the chain that translates packets to the endpoint of a number, and the map with these endpoints of
// all Services.
func (p portRules) endpoint(at place, kind string, i int) string {
	chain, endpoints := p.family.nth(kind+"endpoint", i), p.family.nth(kind+"endpoints", i)
	fields := at.fields
	keys := "inet_proto . inet_service"
	if at == atAddress {
		fields = fmt.Sprintf(fields, p.family.ip)
		keys = p.family.address + " . " + keys
	}
	p.rules.AddSet(endpoints, nft.Set{Map: true, Type: keys + " : " + p.family.address + " . inet_service"})
	p.rules.AddChain(chain, nft.Chain{Rules: []string{fmt.Sprintf("dnat %s to %s map @%s", p.family.ip, fields, endpoints)}})
	return chain
}

// masquerading adds a chain that marks packets to be masqueraded before they continue in another chain.
func (p portRules) masquerading(chain string) string {
	name := "masquerade-" + chain
	p.rules.AddChain(name, nft.Chain{Rules: []string{MarkForMasquerade, "goto " + chain}})
	return name
}
