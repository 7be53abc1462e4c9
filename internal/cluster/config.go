// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster assembles the parts of Kindred: it starts them in order, decides when the
// cluster is ready, and stops it. Every part gets plain values and clients; no part knows another.
package cluster

import (
	"net"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/auth/audit"
	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	kubeletconfig "github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/storage"
)

// CheckRuntimeConfig validates a RuntimeConfig.
func CheckRuntimeConfig(config map[string]string) error { return apiserver.CheckRuntimeConfig(config) }

// Config configures a cluster. It is resolved: only Clock has a default here.
type Config struct {
	Dir datadir.Layout
	// BindAddress and Port are where the API listens; port 0 is any free one.
	BindAddress net.IP
	Port        int
	// Etcd is an external store; no servers means the embedded one.
	Etcd storage.External
	// EtcdMember is set if the embedded etcd is one member of a cluster; JoinEtcd are URLs of members to join, none for the first.
	EtcdMember bool
	JoinEtcd   []string
	// Join admits this machine as a server of a cluster that runs; without a server, it is the first.
	Join join.ServerInvitation
	// Authorities is a directory with the keys of the cluster; empty means that they are generated, or received from another server.
	Authorities string
	// Names are further names and addresses in the certificate of the API.
	Names pki.Names
	// History is how much history the store retains.
	History storage.Retention
	// ServiceCIDRs are the ranges of ClusterIPs: IPv4, and IPv6 if Services may have both.
	ServiceCIDRs []netip.Prefix
	// ClusterCIDRs are the ranges from which nodes get theirs for pods, one of each IP family that pods have.
	ClusterCIDRs []netip.Prefix
	// PodCIDRs are the ranges of the real node's pods, at most one of each IP family; the pod network chooses a free
	// one of ClusterCIDRs for a family that has none.
	PodCIDRs []netip.Prefix
	// Node is set if this machine is a node; NodeName is the node's name.
	Node     bool
	NodeName string
	// NodeIPs are the addresses at which other machines reach this one as a node, at most one of each IP family; without any, the
	// node has the addresses of the bridge of its pods.
	NodeIPs []netip.Addr
	// PodNetwork is how packets for pods get to other machines.
	PodNetwork string
	// KubeletDir is a link to the node agent's directory that the agent uses as its root; empty means
	// none.
	KubeletDir string
	// Kubelet is the configuration of the node's agent.
	Kubelet *kubeletconfig.Configuration
	// RuntimeEndpoint is the CRI endpoint of the user's container runtime; empty means a private
	// containerd.
	RuntimeEndpoint string
	// LoadBalancerPools are ranges of addresses for Services of the type LoadBalancer; none means the
	// addresses of nodes.
	LoadBalancerPools []netip.Prefix
	// DNS is set if this machine, as a node, serves the cluster's DNS. DNSHosts is a file of further names;
	// empty means none.
	DNS      bool
	DNSHosts string
	// ClusterNetworkPolicies is set if this machine, as a node, installs and applies ClusterNetworkPolicies.
	ClusterNetworkPolicies bool
	// Ingress configures the proxy of Ingresses; nil means none.
	Ingress *Ingress
	// SimulatedNodes is how many nodes to simulate.
	SimulatedNodes int
	// ReserveDisk is how many bytes must stay free for writes to be accepted.
	ReserveDisk uint64
	// TerminatedPods is the number of ended pods to keep. If it is not positive, all are kept.
	TerminatedPods int
	// RuntimeConfig enables and disables built-in API versions and resources.
	RuntimeConfig map[string]string
	// Authentication and Authorization configure services outside of the cluster.
	Authentication authentication.Config
	Authorization  authorization.Config
	// Audit configures the audit log.
	Audit audit.Config
	// Encryption configures the encryption of values in etcd.
	Encryption storage.Encryption
	// Version is the version of the program.
	Version string
	// Flags are the flags of the program and their values, for /flagz; nil means that it is not served.
	Flags map[string]string
	Clock clock.WithTicker
	// Progress is called after each step with the time that it took.
	Progress func(step string, took time.Duration)
	// Notice is called with each line that a user should read.
	Notice func(line string)
}

// notice tells a user something.
func (config *Config) notice(line string) {
	if config.Notice != nil {
		config.Notice(line)
	}
}
