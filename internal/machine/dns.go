// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/network/dns"
)

// clusterDomain is the domain of the names of Services and pods.
const clusterDomain = "cluster.local"

// dnsIndex is the place of the address of the DNS servers in the range of ClusterIPs, as in clusters that
// kubeadm sets up.
const dnsIndex = 10

// startDNS starts the DNS server of this node, or removes what an earlier one has published, and returns
// the addresses of DNS servers for pods; none if Services are not routed, because pods reach the servers by
// their Service. A failure is a notice, because the other parts do not need DNS.
func (m *Machine) startDNS(ctx context.Context, routed bool) ([]string, error) {
	client, err := kubernetes.NewForConfig(m.api.ConfigFor(dnsUser))
	if err != nil {
		return nil, err
	}
	publisher := dns.NewPublisher(client, m.api.Informers, m.options.Clock)
	address := publisher.ClusterIP(serviceIP(m.options.ServiceCIDRs[0], dnsIndex))
	switch {
	case !m.options.DNS:
		err = publisher.Withdraw(ctx, m.options.Name)
	case !address.IsValid():
		err = fmt.Errorf("the service range %s has no tenth address", m.options.ServiceCIDRs[0])
	case m.bridge.Gateway != nil: // a runtime of the user's has a pod network that is not known here
		err = m.serveDNS(ctx, publisher, address)
	}
	if err != nil && ctx.Err() == nil {
		m.notice(fmt.Sprintf("no cluster DNS: %v", err))
	}
	if err != nil || !routed || !address.IsValid() {
		return nil, ctx.Err()
	}
	return []string{address.String()}, ctx.Err()
}

// serveDNS serves on the pod bridge.
func (m *Machine) serveDNS(ctx context.Context, publisher *dns.Publisher, clusterIP netip.Addr) error {
	bridge, ok := netip.AddrFromSlice(m.bridge.Gateway.To4())
	if !ok {
		return fmt.Errorf("the pod bridge has no IPv4 address")
	}
	server, err := dns.New(dns.Options{
		Informers: m.api.Informers, Domain: clusterDomain, ResolvConf: resolvConf(), Hosts: m.options.DNSHosts,
		Own: []netip.Addr{bridge, clusterIP}, Clock: m.options.Clock,
	})
	if err != nil {
		return err
	}
	sockets, err := dns.Listen(ctx, bridge)
	if err != nil {
		return err
	}
	published := dns.Published{ClusterIP: clusterIP, Node: m.options.Name, Endpoint: sockets.Address()}
	m.parts.Start("DNS", func(ctx context.Context) error { return server.Serve(ctx, sockets) })
	m.parts.Start("DNS Service", func(ctx context.Context) error { return publisher.Run(ctx, published) })
	return nil
}

// resolvConf returns the file with the resolvers of this machine.
func resolvConf() string {
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
