// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kindred runs a Kubernetes cluster in a Go program: API server, controllers,
// garbage collector, scheduler and node agent share the process.
//
//	cluster, err := kindred.Start(ctx, kindred.Options{DataDir: dir, SimulatedNodes: 3, NoNode: true})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//	client, err := kubernetes.NewForConfig(cluster.Config())
//
// Several clusters can run in one process, each with its own data directory.
// Tests that should not depend on Kindred's dependencies use the module kindredtest, which
// runs the kindred binary instead.
package kindred

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/cluster"
	"github.com/kindred-project/kindred/internal/storage"
)

// Defaults of Options. The address and ranges are upstream's.
const (
	DefaultBindAddress = "127.0.0.1"
	DefaultServiceCIDR = "10.96.0.0/16"
	// DefaultReserveDisk is how many bytes must stay free on the disk of the data directory.
	// With less, writes are refused and /readyz fails.
	DefaultReserveDisk = 256 << 20
	// LeastMemory is the minimum memory limit, in bytes. An idle cluster uses about half of it.
	LeastMemory = 256 << 20
	// GoMemoryShare is the share of the memory limit that Go may use. The rest is for what Go does not
	// count, such as pages of the program and of the store's file, and for what Go takes beyond its limit,
	// which is a tenth when much is allocated near it: collections take half of the processor time at most.
	GoMemoryShare = 0.85
	// DefaultTerminatedPodGCThreshold is the number of ended pods to keep, upstream's.
	DefaultTerminatedPodGCThreshold = 12500
	// DefaultIngressHTTPPort and DefaultIngressHTTPSPort are the ports of Ingresses.
	DefaultIngressHTTPPort  = 80
	DefaultIngressHTTPSPort = 443
)

// Defaults of the history that the store keeps.
var (
	DefaultHistoryRetention = storage.DefaultRetention.Age
	DefaultHistorySize      = storage.DefaultRetention.Size
	DefaultDeletionRecords  = storage.DefaultRetention.Deletions
)

// Options configure a cluster. Only DataDir is required.
type Options struct {
	// DataDir holds all persistent state of the cluster. It is created, or reused if an earlier
	// cluster left it. A directory with other files is refused.
	DataDir string
	// BindAddress is the IP address that the API listens on. By default it is 127.0.0.1, or with Server or Join an address of this
	// machine that others reach.
	BindAddress string
	// Server is set if other machines are to use the API: nodes that join, and other servers.
	Server bool
	// SecurePort is the port of the API; 0 picks a free one.
	SecurePort int
	// EtcdServers are the URLs of an external etcd, which replaces the embedded one. The files
	// have its CA and a client certificate and key.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// EtcdEmbedded is set if the embedded etcd is one member of an etcd cluster, which has its members on the servers. JoinEtcd are the
	// URLs of members to join (https://10.0.0.1:2379), for a server that joins a cluster.
	EtcdEmbedded bool
	JoinEtcd     []string
	// Join is the URL of a server of a cluster that runs, of which this machine becomes a server too; JoinToken, JoinCAHash and
	// JoinKey admit it. "kindred token create --server" prints them. They are not needed again once the machine has joined, and
	// EtcdServers must be those of the cluster, or JoinEtcd members of it.
	Join, JoinToken, JoinCAHash, JoinKey string
	// Authorities is a directory with the keys of the cluster, which this server adopts when it starts for the first time: ca.crt, ca.key,
	// front-proxy-ca.crt, front-proxy-ca.key and sa.key, and etcd-ca.crt and etcd-ca.key with EtcdEmbedded. The keys are ECDSA, in PEM. A
	// server that has them joins the cluster without a token. If it is empty, new ones are generated.
	Authorities string
	// TLSSANs are further names and addresses in the certificate of the API, such as those of a load balancer before the servers.
	TLSSANs []string
	// EncryptionProviderConfig is a file with an EncryptionConfiguration of
	// apiserver.config.k8s.io: which resources are encrypted in etcd, and with which keys. With
	// EncryptionProviderConfigAutomaticReload it is reloaded when it changes.
	EncryptionProviderConfig                string
	EncryptionProviderConfigAutomaticReload bool
	// HistoryRetention is the time that past states of objects, deleted ones included, can be read;
	// DefaultHistoryRetention if 0, at least 5 minutes.
	HistoryRetention time.Duration
	// HistorySize is how many bytes of etcd's database may be in use before history is removed
	// early, except that of the last 5 minutes; DefaultHistorySize if 0.
	HistorySize int64
	// DeletionRecords is the time that records of deletions are kept; DefaultDeletionRecords if 0, at
	// least a minute.
	DeletionRecords time.Duration
	// ContainerRuntimeEndpoint is the CRI v1 endpoint of a container runtime
	// (unix:///run/containerd/containerd.sock). If it is empty, Kindred starts a private
	// containerd.
	ContainerRuntimeEndpoint string
	// SimulatedNodes is how many nodes to simulate, with or without a real one.
	SimulatedNodes int
	// NoNode is set if this machine is not to be a node.
	NoNode bool
	// NoDNS is set if this machine is not to serve the cluster's DNS, because another DNS server will be
	// installed.
	NoDNS bool
	// DNSHosts is a file in the format of /etc/hosts: names that the cluster's DNS answers from it, and
	// not from the resolvers of this machine.
	DNSHosts string
	// ClusterNetworkPolicies is set if this machine's node applies ClusterNetworkPolicies (policy.networking.k8s.io). Their
	// CustomResourceDefinition is installed unless it exists.
	ClusterNetworkPolicies bool
	// Ingress is set if this machine is to serve Ingresses of the class kindred.
	Ingress bool
	// IngressAddress is the IP address that it serves them on; all addresses of the machine if empty.
	IngressAddress string
	// IngressHTTPPort and IngressHTTPSPort are its ports; DefaultIngressHTTPPort and DefaultIngressHTTPSPort if 0.
	IngressHTTPPort, IngressHTTPSPort int
	// NodeName is the name of this machine's node; the host name if empty.
	NodeName string
	// NodeIP are the addresses at which other machines reach this one as a node: IPv4, and IPv6 after a comma. By default it is
	// BindAddress, if that is one address and not loopback; else the node has the addresses of the bridge of its pods.
	NodeIP string
	// PodNetwork is how packets for pods get to other machines: PodNetworkAuto if empty.
	PodNetwork string
	// KubeletDir is where CSI drivers expect the kubelet's directory, usually /var/lib/kubelet. It
	// becomes a link to the node agent's directory. If empty, drivers must be given the directory
	// node in DataDir.
	KubeletDir string
	// KubeletConfig is a file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) for this machine's node. Fields
	// that have no effect are reported to Notice. KubeletConfigDir is a directory with files *.conf that are merged over it
	// in the order of their names.
	KubeletConfig, KubeletConfigDir string
	// Flags are the flags of the program and their values, which the API server and the node show at /flagz; if they are nil, they
	// do not.
	Flags map[string]string
	// PodCIDR is the range of this node's pods; a free /24 of 10.244.0.0/16 if
	// empty. ServiceCIDR is the range of ClusterIPs; 10.96.0.0/16 if empty. Both may
	// have an IPv6 range after a comma. If one has, pods have an IPv6 address too, of a free
	// /64 of fd00:10:244::/48 unless PodCIDR names a range.
	PodCIDR, ServiceCIDR string
	// ClusterCIDR is the range from which nodes get theirs for pods; 10.244.0.0/16 if empty. It may have an IPv6 range after a
	// comma, fd00:10:244::/48 if it has none. All servers of a cluster have the same.
	ClusterCIDR string
	// LoadBalancerPools are ranges of addresses for Services of the type LoadBalancer, which the node announces
	// by ARP and NDP on the networks of this machine; the address of the node if empty. IPv6 ranges need
	// pods with IPv6.
	LoadBalancerPools []string
	// TerminatedPodGCThreshold is how many pods that have ended are kept before the oldest are deleted;
	// DefaultTerminatedPodGCThreshold if 0, and all if it is negative.
	TerminatedPodGCThreshold int
	// RuntimeConfig enables and disables versions and resources of the built-in API groups, as
	// --runtime-config of upstream's API server: {"autoscaling/v1": "false"}.
	RuntimeConfig map[string]string
	// ReserveDisk is how many bytes must stay free on the disk; DefaultReserveDisk if 0.
	ReserveDisk uint64
	// Memory limits the memory of the process, in bytes. It must be at least LeastMemory; 0 leaves Go's memory limit as it is.
	// Start sets Go's memory limit, which applies to the whole process, to GoMemoryShare of Memory. When the process
	// approaches Go's memory limit, large requests and requests that create objects get status 429 (Too Many Requests).
	Memory int64
	// Authentication and Authorization configure services outside of the cluster.
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions
	// Audit, if set, configures the audit log. Create it with NewAuditOptions.
	Audit *AuditOptions
	// Version is the version of the program; "kindred status" prints it.
	Version string
	// Clock is the source of time of the cluster's logic; the real clock if nil. Times that
	// libraries stamp (deletion timestamps, certificates, etcd's leases) are always real.
	Clock clock.WithTicker
	// Progress, if set, is called after each step of the start with the time that it took.
	Progress func(step string, took time.Duration)
	// Notice, if set, is called with each line that a user should read.
	Notice func(line string)
}

// Cluster is a cluster running in this process.
type Cluster struct{ running *cluster.Cluster }

// Start starts a cluster and returns when it is ready: API, controllers and scheduler work,
// and the requested nodes are ready. If ctx is done before that, Start stops what it started
// and returns an error. The context has no effect on a cluster that is ready.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	config, err := options.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if options.Memory > 0 {
		debug.SetMemoryLimit(int64(GoMemoryShare * float64(options.Memory)))
	}
	running, err := cluster.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Cluster{running}, nil
}

// Config returns a client configuration with all permissions. It works only in this process,
// by function calls; other programs use Kubeconfig.
func (c *Cluster) Config() *rest.Config { return c.running.RESTConfig() }

// Kubeconfig returns the path of a kubeconfig with all permissions.
func (c *Cluster) Kubeconfig() string { return c.running.Kubeconfig() }

// Server returns the URL of the API.
func (c *Cluster) Server() string { return c.running.Server() }

// Failed returns a channel that gets at most one error: why the cluster cannot continue,
// because its store failed or a part ended. The caller should then call Stop.
func (c *Cluster) Failed() <-chan error { return c.running.Failed() }

// Stop stops the cluster. Containers keep running; the next cluster on the same data directory
// adopts them.
func (c *Cluster) Stop() { c.running.Stop() }
