// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/controllers/loadbalancer"
	"github.com/kindred-project/kindred/internal/controllers/localpath"
	"github.com/kindred-project/kindred/internal/controllers/nodeipam"
	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/node/simulated"
	"github.com/kindred-project/kindred/internal/node/stats"
	"github.com/kindred-project/kindred/internal/part"
)

// decideNode falls back to a simulated node if this machine cannot be a node, and notifies the
// user of the reason.
func (config *Config) decideNode() {
	if !config.Node || config.RuntimeEndpoint != "" {
		return
	}
	missing := containerd.Missing()
	if len(missing) == 0 {
		return
	}
	config.Node = false
	config.SimulatedNodes = max(config.SimulatedNodes, 1)
	config.notice(fmt.Sprintf("no real node, a simulated one instead: %s; %s",
		"missing "+strings.Join(missing, ", "), containerd.HowToGet(missing)))
}

// volumeNodes returns the nodes of this process on which the controllers provision volumes of the default StorageClass.
func (c *Cluster) volumeNodes() localpath.Nodes {
	nodes := localpath.Nodes{Simulated: simulated.Key}
	if c.config.Node {
		nodes.Real, nodes.Root = c.config.NodeName, c.config.Dir.Volumes()
	}
	return nodes
}

// podRanges returns the ranges from which machines that join get theirs.
func (config *Config) podRanges() nodeipam.Options {
	options := nodeipam.Options{
		Services: config.ServiceCIDRs, Simulated: simulated.Key,
		Routed: func() ([]netip.Prefix, error) { return links.Routed("") },
	}
	for _, p := range config.ClusterCIDRs {
		options.Ranges = append(options.Ranges, nodeipam.Range{CIDR: p})
	}
	return options
}

// loadBalancers returns the configuration of the addresses of Services of the type LoadBalancer.
func (config *Config) loadBalancers() loadbalancer.Options {
	return loadbalancer.Options{Pools: config.LoadBalancerPools, Simulated: simulated.Key}
}

// prepareMachine starts the pod network and the container runtime in the background. It returns nil if
// this machine is not to be a node.
func prepareMachine(ctx context.Context, config Config, steps *steps) *machine.Machine {
	if !config.Node {
		return nil
	}
	return machine.Prepare(ctx, machine.Options{
		Dir: config.Dir, Name: config.NodeName, KubeletDir: config.KubeletDir, Kubelet: config.Kubelet, RuntimeEndpoint: config.RuntimeEndpoint,
		ClusterCIDRs: config.ClusterCIDRs, PodCIDRs: config.PodCIDRs, ServiceCIDRs: config.ServiceCIDRs, NodeIPs: config.NodeIPs, PodNetwork: config.PodNetwork, LoadBalancerPools: config.LoadBalancerPools,
		DNS: config.DNS, DNSHosts: config.DNSHosts, ClusterNetworkPolicies: config.ClusterNetworkPolicies,
		Clock: config.Clock, Step: steps.done, Notice: config.Notice,
	})
}

// startNode starts the node of this machine, and waits until it is ready. A server without a node has routes to the pods of other
// machines, unless it is alone.
func (c *Cluster) startNode(ctx context.Context) error {
	switch {
	case c.machine != nil:
		if err := c.machine.Join(ctx, c.apiForNode(), c.parts); err != nil {
			return err
		}
	case !c.config.BindAddress.IsLoopback():
		nodes := c.server.Informers().Core().V1().Nodes()
		c.parts.Start("routes to pods", func(ctx context.Context) error {
			return machine.KeepPodRoutes(ctx, c.config.Dir, nodes, c.config.Clock)
		})
	}
	c.checks.pass("node")
	return nil
}

// simulatedStats returns the source of what a simulated node uses; nil if the node is not simulated.
func (c *Cluster) simulatedStats(node string) stats.Source {
	t := c.term.Load()
	if t == nil {
		return nil
	}
	if nodes := t.simulated.Load(); nodes != nil {
		return nodes.Stats(node)
	}
	return nil
}

// apiForNode returns the access of this machine, as a node, to the API.
func (c *Cluster) apiForNode() machine.API {
	return machine.API{
		ConfigFor: func(as part.Identity) *rest.Config { return configFor(c.server, as) },
		Informers: c.server.Informers(), StartInformers: c.server.StartInformers,
		Address: c.serving.forPods(), Serving: machine.Issued(c.keys, c.config.NodeName), ClusterCA: c.keys.Cluster.CertPEM,
	}
}
