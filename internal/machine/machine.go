// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/network"
	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/part"
)

// Machine is a machine that serves as a node, or is about to.
type Machine struct {
	options Options
	names   containerd.Names
	// runtimeOptions are those of the private containerd.
	runtimeOptions containerd.Options
	// endpoint is the runtime's CRI endpoint.
	endpoint string

	// networkDone is closed when bridge or networkErr is set. An external runtime has its own pod
	// network, and sets neither.
	networkDone chan struct{}
	bridge      containerd.Network
	networkErr  error
	// rulesDone is closed when rules and notices, or rulesErr, are set.
	rulesDone chan struct{}
	rules     *network.Rules
	rulesErr  error
	// notices are lines about what the machine lacks for the network.
	notices []string
	// runtimeDone is closed when endpoint and version, or runtimeErr, are set.
	runtimeDone chan struct{}
	version     string
	runtimeErr  error
	// supervise keeps the private containerd running.
	supervise func(context.Context)

	// shown are the static pods of a node without an API; nil if the node has an API, or translates no host ports.
	shown *localPods

	// wireguardKey is nil unless packets for pods of other machines are encrypted.
	wireguardKey *network.WireGuardKey

	// api and parts are those of Join.
	api   API
	parts *part.Group
}

// Prepare starts the pod network and the container runtime in the background, and examines the kernel: this takes
// longest and does not depend on the API.
func Prepare(ctx context.Context, o Options) *Machine {
	if o.Kubelet == nil {
		o.Kubelet = kubeletconfig.Default()
	}
	m := &Machine{
		options: o, endpoint: o.RuntimeEndpoint,
		networkDone: make(chan struct{}), rulesDone: make(chan struct{}), runtimeDone: make(chan struct{}),
	}
	for _, line := range o.Kubelet.Ignored {
		m.notice(line)
	}
	m.names, m.networkErr = containerd.NamesFor(o.Dir.ID())
	if m.networkErr != nil || m.endpoint != "" {
		// The user's runtime has its own pod network.
		close(m.networkDone)
		go m.openRules(ctx)
		close(m.runtimeDone)
		return m
	}
	m.runtimeOptions = RuntimeOptions(o.Dir, m.names)
	m.runtimeOptions.ClusterCIDRs, m.runtimeOptions.PodCIDRs, m.runtimeOptions.IPv6 = o.ClusterCIDRs, o.PodCIDRs, hasIPv6(o.PodCIDRs) || hasIPv6(o.ServiceCIDRs)
	m.runtimeOptions.SystemdCgroup = o.Kubelet.CgroupDriver == "systemd"
	m.runtimeOptions.Clock = o.Clock
	go m.startRuntime(ctx)
	return m
}

// startRuntime starts the pod network and the private containerd.
func (m *Machine) startRuntime(ctx context.Context) {
	defer close(m.runtimeDone)
	m.bridge, m.networkErr = containerd.EnsureNetwork(ctx, m.runtimeOptions.NetworkOptions())
	close(m.networkDone)
	go m.openRules(ctx)
	if m.networkErr != nil {
		return
	}
	runtime, err := containerd.Start(ctx, m.runtimeOptions)
	if err != nil {
		m.runtimeErr = err
		return
	}
	m.endpoint, m.version, m.supervise = runtime.Endpoint, runtime.Version, runtime.Supervise
}

// DefaultClusterCIDRs returns the ranges from which nodes get theirs for pods by default: IPv4, and IPv6 if pods have both.
func DefaultClusterCIDRs(ipv6 bool) []netip.Prefix { return containerd.DefaultClusterCIDRs(ipv6) }

// RuntimeOptions returns the options of the private containerd of a data directory.
func RuntimeOptions(dir datadir.Layout, names containerd.Names) containerd.Options {
	return containerd.Options{Names: names, Root: dir.Containerd(), RunDir: dir.Run(), LogFile: dir.RuntimeLog()}
}

// deleteTask deletes the task of a container, if the runtime is a containerd.
func (m *Machine) deleteTask(ctx context.Context, container string) error {
	return containerd.DeleteTask(ctx, m.endpoint, container)
}

// Endpoint returns the CRI endpoint of the container runtime. It is known after [Machine.Join].
func (m *Machine) Endpoint() string { return m.endpoint }

// BridgeAddress waits for the pod network, and returns the address at which its pods reach this machine; nil if the pod
// network is not Kindred's.
func (m *Machine) BridgeAddress(ctx context.Context) (net.IP, error) {
	if err := part.Await(ctx, m.networkDone); err != nil {
		return nil, err
	}
	return m.bridge.Gateway, m.networkErr
}

// address returns the node's address.
func (m *Machine) address() net.IP {
	if len(m.options.NodeIPs) > 0 {
		return net.IP(m.options.NodeIPs[0].AsSlice())
	}
	return m.addressForPods()
}

// addressForPods returns the address of the machine for its pods: the gateway of the pod network, or the host's address if the
// runtime has its own network.
func (m *Machine) addressForPods() net.IP {
	if m.bridge.Gateway != nil {
		return m.bridge.Gateway
	}
	return HostIP()
}

// addresses returns the node's addresses, at most one for each IP family.
func (m *Machine) addresses() []string {
	if len(m.options.NodeIPs) > 0 {
		var all []string
		for _, a := range m.options.NodeIPs {
			all = append(all, a.String())
		}
		return all
	}
	if m.bridge.Gateway != nil {
		return m.bridge.Gateways()
	}
	return []string{HostIP().String()}
}

// externalIPs returns the addresses of this machine for clients outside of the cluster, of the IP families that its pods
// have. They may change.
func (m *Machine) externalIPs() []string {
	addresses, err := network.DefaultAddresses(m.runtimeOptions.IPv6)
	if err != nil {
		klog.ErrorS(err, "Reading the address of the machine's default route; the Node gets no ExternalIP")
	}
	var all []string
	for _, a := range addresses {
		if !slices.Contains(m.options.NodeIPs, a) {
			all = append(all, a.String())
		}
	}
	return all
}

// HostIP returns an address of this machine in its network, or loopback if it has no network.
func HostIP() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return net.IPv4(127, 0, 0, 1)
	}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP
		}
	}
	return net.IPv4(127, 0, 0, 1)
}

func hasIPv6(ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is6() })
}
