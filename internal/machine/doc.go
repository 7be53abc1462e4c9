// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine makes this machine a node of a cluster: it starts the pod network, the container runtime, the node's
// agent, and what routes Services, applies NetworkPolicies and answers DNS on it. It reaches the cluster only by its
// API, in this process or in another.
package machine

import (
	"crypto/tls"
	"net/netip"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/network"
	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/part"
)

// Options configure a node.
type Options struct {
	// Dir has the data of the node and of its container runtime.
	Dir datadir.Layout
	// Name is the name of the Node object.
	Name string
	// KubeletDir is a link to the agent's directory that the agent uses as its root; empty means none.
	KubeletDir string
	// Kubelet is the configuration of the agent; nil means the default.
	Kubelet *kubeletconfig.Configuration
	// RuntimeEndpoint is the CRI endpoint of the user's container runtime; empty means a private containerd.
	RuntimeEndpoint string
	// ClusterCIDRs are the ranges from which a free one is chosen, of each IP family; none means the defaults.
	ClusterCIDRs []netip.Prefix
	// PodCIDRs are the ranges of the node's pods, at most one of each IP family; the pod network chooses a free one for
	// a family that has none.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of ClusterIPs: IPv4, and IPv6 if Services may have both.
	ServiceCIDRs []netip.Prefix
	// NodeIPs are the addresses at which other machines reach this one, at most one of each IP family; without any, the node has
	// the addresses of the bridge of its pods.
	NodeIPs []netip.Addr
	// PodNetwork is how packets for pods get to other machines: PodNetworkAuto, PodNetworkVXLAN or PodNetworkWireGuard.
	PodNetwork string
	// LoadBalancerPools are the ranges of addresses of load balancers that nodes announce.
	LoadBalancerPools []netip.Prefix
	// DNS is set if the node serves the cluster's DNS. DNSHosts is a file of further names; empty means none.
	DNS      bool
	DNSHosts string
	// ClusterNetworkPolicies is set if the node installs and applies ClusterNetworkPolicies.
	ClusterNetworkPolicies bool
	Clock                  clock.WithTicker
	// Step is called after each step of the start.
	Step func(string)
	// Notice is called with each line that a user should read; nil means that no user reads.
	Notice func(line string)
}

// Values of Options.PodNetwork.
const (
	PodNetworkAuto      = string(network.PodsAuto)
	PodNetworkVXLAN     = string(network.PodsVXLAN)
	PodNetworkWireGuard = string(network.PodsWireGuard)
)

// API is a node's access to the API of its cluster.
type API struct {
	// ConfigFor returns the configuration of a client that acts as a part of the node.
	ConfigFor func(part.Identity) *rest.Config
	// Informers are shared with other parts. StartInformers starts those that do not run yet.
	Informers      informers.SharedInformerFactory
	StartInformers func()
	// Address is the address of the API for pods that cannot reach it by its Service; the zero AddrPort if there is
	// none.
	Address netip.AddrPort
	// Serving returns the certificate of the agent's server for names, which may be replaced, and is nil as long as there is none.
	Serving func(pki.Names) (certificate func() *tls.Certificate, err error)
	// ClusterCA, in PEM, verifies the clients of the agent's server.
	ClusterCA []byte
	// Elsewhere is set if the cluster is not in this process.
	Elsewhere bool
}

var (
	proxyUser = part.Identity{Info: part.User(user.KubeProxy), Agent: part.ProxyAgent}
	dnsUser   = part.Identity{Info: part.ServiceAccount("cluster-dns"), Agent: "kindred-dns"}
	// clusterPoliciesUser installs the kind ClusterNetworkPolicy and watches its objects. The bootstrap roles are
	// upstream's, which allow kube-proxy no custom kinds.
	clusterPoliciesUser = part.Identity{Info: part.User("kindred:network-policies", user.SystemPrivilegedGroup), Agent: part.ProxyAgent}
)

// kubeletClientUser is the user that the API server authenticates as to nodes; see pki.KubeletClient.
const kubeletClientUser = "kube-apiserver-kubelet-client"

// agentUser returns the identity of a node's agent.
func agentUser(node string) part.Identity {
	return part.Identity{Info: part.User("system:node:"+node, user.NodesGroup), Agent: part.NodeAgent}
}

func (m *Machine) notice(line string) {
	if m.options.Notice != nil {
		m.options.Notice(line)
	}
}
