// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/controllers/loadbalancer"
	"github.com/kindred-project/kindred/internal/network"
	"github.com/kindred-project/kindred/internal/node/simulated"
)

// startNetwork starts the part that routes Services and applies NetworkPolicies on this machine. It returns nil,
// after a notice, if the machine cannot change nftables rules.
func (c *Cluster) startNetwork(ctx context.Context, m *machine) (*network.Network, error) {
	events, err := c.recorder(proxyUser, proxyAgent)
	if err != nil {
		return nil, err
	}
	clusterPolicies, err := c.clusterPolicies(ctx)
	if err != nil {
		return nil, err
	}
	options := network.Options{
		Node: c.config.NodeName, Table: serviceTable(m.names), Bridge: m.bridge.Bridge, PodRanges: m.bridge.PodCIDRs,
		Clusters: containerd.Bridges, Pools: c.config.LoadBalancerPools, Simulated: simulated.Key,
		Informers: c.server.Informers(), ClusterPolicies: clusterPolicies, Events: events, Clock: c.config.Clock,
	}
	if m.bridge.Bridge != "" {
		options.PodNetwork = m.bridge
	}
	n, err := network.New(options)
	if err != nil {
		if c.config.Notice != nil {
			c.config.Notice(fmt.Sprintf("Services are not routed on this node and NetworkPolicies are not applied: %v; apt-get install nftables, run as root", err))
		}
		return nil, nil
	}
	if m.bridge.Bridge != "" && !containerd.FiltersBridged() && c.config.Notice != nil {
		c.config.Notice("the kernel has no br_netfilter: between two pods of this node, Services do not work and NetworkPolicies do not apply; modprobe br_netfilter")
	}
	c.warnOfFirewalls(ctx, m)
	c.server.StartInformers()
	if clusterPolicies != nil {
		c.parts.start("cluster network policies", c.fail, func(ctx context.Context) error {
			clusterPolicies.RunWithContext(ctx)
			return nil
		})
	}
	c.parts.start("network", c.fail, n.Run)
	return n, nil
}

// warnOfFirewalls gives a notice of each firewall of the machine that may drop packets of pods.
func (c *Cluster) warnOfFirewalls(ctx context.Context, m *machine) {
	if m.bridge.Bridge == "" || c.config.Notice == nil {
		return
	}
	remedies, err := Firewalls(ctx, m.names)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The machine's firewall is not examined")
	}
	for _, remedy := range remedies {
		c.config.Notice(remedy)
	}
}

// Firewalls returns messages about firewalls of the machine that may drop packets of pods.
func Firewalls(ctx context.Context, n containerd.Names) ([]string, error) {
	found, err := network.Firewalls(ctx, n.Bridge)
	var remedies []string
	for _, f := range found {
		remedies = append(remedies, f.Remedy())
	}
	return remedies, err
}

// serviceTable returns the name of a data directory's nftables table.
func serviceTable(n containerd.Names) string { return "kindred-" + n.ID }

// RemoveNetwork removes what routes Services from the machine.
func RemoveNetwork(ctx context.Context, n containerd.Names) error {
	return network.Remove(ctx, serviceTable(n), n.Bridge)
}

// loadBalancers returns the configuration of the addresses of Services of the type LoadBalancer.
func (config *Config) loadBalancers() loadbalancer.Options {
	return loadbalancer.Options{Pools: config.LoadBalancerPools, Simulated: simulated.Key}
}

// externalIPs returns the addresses of this machine for clients outside of the cluster, of the IP families that its pods
// have. They may change.
func (m *machine) externalIPs() []string {
	addresses, err := network.DefaultAddresses(m.options.IPv6)
	if err != nil {
		klog.ErrorS(err, "Reading the address of the machine's default route; the Node gets no ExternalIP")
	}
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return all
}

// apiForPods returns the address of the API for pods if they do not reach it by its Service: if Services are not
// routed, or if another cluster on the machine has the same range and gets what the machine sends to it, which is
// also where pods in the machine's network are.
func (c *Cluster) apiForPods(services *network.Network) (netip.AddrPort, error) {
	if services == nil {
		return c.serving.forPods(), nil
	}
	taken, err := services.Taken(c.config.ServiceCIDRs[0])
	if err != nil || !taken {
		return netip.AddrPort{}, err
	}
	if c.config.Notice != nil {
		c.config.Notice(fmt.Sprintf("this machine routes %s elsewhere, probably to another cluster: the Services of this one can be reached from pods and by node ports, but not from the machine itself; another --service-cidr in a new data directory avoids that", c.config.ServiceCIDRs[0]))
	}
	return c.serving.forPods(), nil
}
