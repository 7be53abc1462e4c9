// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	v1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/network"
	"github.com/kindred-project/kindred/internal/node/simulated"
	"github.com/kindred-project/kindred/internal/part"
)

// openRules opens the table of the rules of Services and policies, and examines what the machine lacks for them.
func (m *Machine) openRules(ctx context.Context) {
	defer close(m.rulesDone)
	if m.networkErr != nil {
		return
	}
	m.rules, m.rulesErr = network.OpenRules(ctx, network.RuleOptions{
		Table: serviceTable(m.names), Bridge: m.bridge.Bridge, PodRanges: m.bridge.PodCIDRs, Clusters: containerd.Bridges,
	})
	if m.rulesErr != nil {
		return
	}
	m.notices = network.Lacks(ctx)
	if m.bridge.Bridge == "" {
		return
	}
	if !containerd.FiltersBridged() {
		m.notices = append(m.notices, "the kernel has no br_netfilter: between two pods of this node, Services do not work and NetworkPolicies do not apply; modprobe br_netfilter")
	}
	firewalls, err := Firewalls(ctx, m.names)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The machine's firewall is not examined")
	}
	m.notices = append(m.notices, firewalls...)
}

// loadWireGuardKey loads the key of this machine, if packets for pods of other machines are encrypted.
func (m *Machine) loadWireGuardKey() (err error) {
	if m.options.PodNetwork == PodNetworkWireGuard {
		m.wireguardKey, err = network.LoadWireGuardKey(m.options.Dir.WireGuardKey())
	}
	return err
}

// startNetwork starts the part that routes Services and applies NetworkPolicies on this machine. It returns nil,
// after a notice, if the machine cannot change nftables rules.
func (m *Machine) startNetwork(ctx context.Context, guarded []netip.AddrPort) (*network.Network, error) {
	// Without a bridge, the user's runtime has the pod network, and nothing else gives the machine's own packets to
	// Services a route: they are translated after that.
	bridged := m.networkErr == nil && m.bridge.Bridge != ""
	if bridged {
		if err := network.Reject(m.options.ServiceCIDRs); err != nil {
			klog.FromContext(ctx).Error(err, "Packets to Services may leave this machine until Services are routed")
		}
	}
	if err := part.Await(ctx, m.rulesDone); err != nil {
		return nil, err
	}
	if m.rulesErr != nil {
		m.notice(fmt.Sprintf("Services, host ports and NetworkPolicies do not work on this node, and its pods have no cluster DNS: %v; "+
			"they need nftables 1.0.1 or newer (apt-get install nftables), a kernel with nf_tables and conntrack, and root", m.rulesErr))
		if bridged {
			m.keepRejecting()
		}
		return nil, nil
	}
	for _, line := range m.notices {
		m.notice(line)
	}
	events, err := part.Recorder(m.parts.Context(), m.api.ConfigFor(proxyUser), part.ProxyAgent)
	if err != nil {
		return nil, err
	}
	clusterPolicies, err := m.clusterPolicies(ctx)
	if err != nil {
		return nil, err
	}
	options := network.Options{
		Node: m.options.Name, Rules: m.rules, Guarded: guarded, Pools: m.options.LoadBalancerPools, Simulated: simulated.Key,
		Informers: m.api.Informers, ClusterPolicies: clusterPolicies, Events: events, Clock: m.options.Clock,
	}
	if m.bridge.Bridge != "" {
		options.PodNetwork, options.WireGuardKey = m.bridge, m.wireguardKey
	}
	n, err := network.New(options)
	if err != nil {
		return nil, err
	}
	m.api.StartInformers()
	if clusterPolicies != nil {
		m.parts.Start("cluster network policies", func(ctx context.Context) error {
			clusterPolicies.RunWithContext(ctx)
			return nil
		})
	}
	m.parts.Start("network", n.Run)
	return n, nil
}

// startLocalNetwork starts the part that opens the host ports of static pods on a node without an API. It returns nil, after
// a notice, if the machine cannot change nftables rules, and if the user's runtime has the pod network.
func (m *Machine) startLocalNetwork(ctx context.Context) (*network.Network, error) {
	if err := part.Await(ctx, m.rulesDone); err != nil {
		return nil, err
	}
	if m.networkErr != nil || m.bridge.Bridge == "" {
		return nil, nil
	}
	if m.rulesErr != nil {
		m.notice(fmt.Sprintf("host ports do not work on this node: %v; "+
			"they need nftables 1.0.1 or newer (apt-get install nftables), a kernel with nf_tables and conntrack, and root", m.rulesErr))
		return nil, nil
	}
	shown := newLocalPods()
	broadcaster := record.NewBroadcaster(record.WithContext(m.parts.Context()))
	broadcaster.StartStructuredLogging(0)
	sources := shown.informers()
	n, err := network.New(network.Options{
		Node: m.options.Name, Rules: m.rules, PodNetwork: m.bridge, Informers: sources, Clock: m.options.Clock,
		Events: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: part.ProxyAgent, Host: m.options.Name}),
	})
	if err != nil {
		return nil, err
	}
	m.shown = shown
	sources.StartWithContext(m.parts.Context())
	m.parts.Start("network", n.Run)
	return n, nil
}

// keepRejecting keeps packets to Services, which this node does not route, from leaving by its default gateway.
func (m *Machine) keepRejecting() {
	cidrs := m.api.Informers.Networking().V1().ServiceCIDRs()
	cidrs.Informer()
	m.api.StartInformers()
	m.parts.Start("rejection of packets to Services", func(ctx context.Context) error {
		return network.KeepRejecting(ctx, cidrs, m.options.Clock)
	})
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

// apiForPods returns the address of the API for pods if they do not reach it by its Service: if Services are not
// routed, or if another cluster on the machine has the same range and gets what the machine sends to it, which is
// also where pods in the machine's network are.
func (m *Machine) apiForPods(services *network.Network) (netip.AddrPort, error) {
	if services == nil || m.shown != nil {
		return m.api.Address, nil
	}
	taken, err := services.Taken(m.options.ServiceCIDRs[0])
	if err != nil || !taken {
		return netip.AddrPort{}, err
	}
	m.notice(fmt.Sprintf("this machine routes %s elsewhere, probably to another cluster: the Services of this one can be reached from pods and by node ports, but not from the machine itself; another --service-cidr in a new data directory avoids that", m.options.ServiceCIDRs[0]))
	return m.api.Address, nil
}

// KeepPodRoutes keeps routes to the pods of other machines on a server without pods until ctx is done. It does nothing without
// permission to change routes.
func KeepPodRoutes(ctx context.Context, dir datadir.Layout, nodes coreinformers.NodeInformer, clock clock.WithTicker) error {
	names, err := containerd.NamesFor(dir.ID())
	if err != nil || os.Geteuid() != 0 {
		<-ctx.Done()
		return err
	}
	return network.KeepPodRoutes(ctx, nodes, names.Bridge, simulated.Key, clock)
}
