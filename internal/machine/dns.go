// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/network/dns"
	"github.com/kindred-project/kindred/internal/part"
)

// dnsIndex is the place of the address of the DNS servers in the range of ClusterIPs, as in clusters that
// kubeadm sets up.
const dnsIndex = 10

// dnsSockets are the open sockets of the DNS server; nil if the node has none.
type dnsSockets struct {
	dns.Sockets
	// guarded is set if they are on an address that other machines reach.
	guarded bool
}

// openDNS opens the sockets of the DNS server: on the bridge, or, if the user's runtime has a pod network that is not
// known here, on the machine's address, where they are reached by the Service only.
func (m *Machine) openDNS(ctx context.Context) (*dnsSockets, error) {
	if !m.options.DNS {
		return nil, nil
	}
	address, ok := netip.AddrFromSlice(m.addressForPods().To4())
	if !ok {
		return nil, fmt.Errorf("this node has no IPv4 address")
	}
	guarded, port := m.bridge.Gateway == nil, uint16(dns.Port)
	if guarded {
		if address.IsLoopback() {
			return nil, fmt.Errorf("this machine has no address that pods can reach")
		}
		port = 0 // other programs of the machine may want the usual one
	}
	sockets, err := dns.Listen(ctx, netip.AddrPortFrom(address, port))
	if err != nil {
		return nil, err
	}
	return &dnsSockets{sockets, guarded}, nil
}

// toGuard returns the sockets that are reached by the Service only.
func (s *dnsSockets) toGuard() []netip.AddrPort {
	if s == nil || !s.guarded {
		return nil
	}
	return []netip.AddrPort{s.Address()}
}

// startDNS starts the DNS server of this node, or removes what an earlier one has published, and returns
// the addresses of DNS servers for pods; none if Services are not routed, because pods reach the servers by
// their Service.
func (m *Machine) startDNS(ctx context.Context, sockets *dnsSockets, routed bool) ([]string, error) {
	client, err := kubernetes.NewForConfig(m.api.ConfigFor(dnsUser))
	if err != nil {
		return nil, err
	}
	publisher := dns.NewPublisher(client, m.api.Informers, m.options.Clock)
	address := publisher.ClusterIP(serviceIP(m.options.ServiceCIDRs[0], dnsIndex))
	switch {
	case sockets == nil:
		err = m.withdrawDNS(ctx, publisher)
	case !address.IsValid():
		err = fmt.Errorf("the service range %s has no tenth address", m.options.ServiceCIDRs[0])
	case sockets.guarded && !routed: // they would be open to other machines
		sockets.Close()
		sockets, err = nil, m.withdrawDNS(ctx, publisher)
	default:
		err = m.serveDNS(publisher, address, sockets.Sockets)
	}
	if err != nil && sockets != nil {
		sockets.Close()
	}
	if err != nil || !routed || !address.IsValid() {
		return nil, err
	}
	return []string{address.String()}, nil
}

// withdrawDNS removes what an earlier server on this node has published. A machine that has joined publishes nothing.
func (m *Machine) withdrawDNS(ctx context.Context, publisher *dns.Publisher) error {
	if m.api.Elsewhere {
		return nil
	}
	return publisher.Withdraw(ctx, m.options.Name)
}

// serveDNS starts the server and what publishes its address.
func (m *Machine) serveDNS(publisher *dns.Publisher, clusterIP netip.Addr, sockets dns.Sockets) error {
	server, err := dns.New(dns.Options{
		Informers: m.api.Informers, Domain: m.options.Kubelet.ClusterDomain, ResolvConf: m.resolvConf(), Hosts: m.options.DNSHosts,
		Own: []netip.Addr{sockets.Address().Addr(), clusterIP}, Clock: m.options.Clock,
	})
	if err != nil {
		return err
	}
	m.parts.Start("DNS", func(ctx context.Context) error { return server.Serve(ctx, sockets) })
	if m.api.Elsewhere {
		return m.announceDNS(sockets.Address())
	}
	published := dns.Published{ClusterIP: clusterIP, Node: m.options.Name, Endpoint: sockets.Address()}
	m.parts.Start("DNS Service", func(ctx context.Context) error { return publisher.Run(ctx, published) })
	return nil
}

// announceDNS lets a server of the cluster publish the address of this node's DNS server, which the node may not.
func (m *Machine) announceDNS(endpoint netip.AddrPort) error {
	client, err := kubernetes.NewForConfig(m.api.ConfigFor(agentUser(m.options.Name)))
	if err != nil {
		return err
	}
	m.parts.Start("DNS Service", func(ctx context.Context) error {
		return dns.Announce(ctx, client, m.api.Informers.Core().V1().Nodes(), m.options.Name, endpoint, m.options.Clock)
	})
	return nil
}

// PublishDNS publishes the DNS servers of machines that have joined until ctx is done. services is the range of ClusterIPs.
func PublishDNS(ctx context.Context, configFor func(part.Identity) *rest.Config, informers informers.SharedInformerFactory, services netip.Prefix, clock clock.WithTicker) error {
	client, err := kubernetes.NewForConfig(configFor(dnsUser))
	if err != nil {
		return err
	}
	publisher := dns.NewPublisher(client, informers, clock)
	address := publisher.ClusterIP(serviceIP(services, dnsIndex))
	if !address.IsValid() { // the node that serves DNS says so
		<-ctx.Done()
		return nil
	}
	return publisher.RunNodes(ctx, informers.Core().V1().Nodes(), address)
}

// resolvConf returns the file with the resolvers of this machine.
func (m *Machine) resolvConf() string {
	if configured := m.options.Kubelet.ResolverConfig; configured != nil {
		return *configured
	}
	return dns.ResolvConf("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
}

// serviceIP returns an address of the range of ClusterIPs; the zero Addr if the range is smaller.
func serviceIP(cidr netip.Prefix, index int) netip.Addr {
	address := cidr.Masked().Addr()
	for range index {
		address = address.Next()
	}
	if !cidr.Contains(address) {
		return netip.Addr{}
	}
	return address
}
