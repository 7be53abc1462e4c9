// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
)

// Options say which node the agent is and what it works with.
type Options struct {
	// Name is the node's name; it is also its host name label.
	Name string
	// Client talks to the API as system:node:<Name>.
	Client kubernetes.Interface
	// Endpoint is the CRI endpoint of the runtime and its images, as in unix:///run/containerd/containerd.sock.
	Endpoint string
	// RootDir holds pods' volumes, logs and files. Its file system must allow mounts.
	RootDir string
	// Owner marks the sandboxes and containers of this node in the runtime. No other user of the
	// runtime may have the same.
	Owner string
	// CgroupParent is the cgroup below which all pods are, an absolute path; empty leaves cgroups
	// to the runtime.
	CgroupParent string
	// IPs are the node's addresses, one a family, the first the preferred one.
	IPs []string
	// ServePort is where the node's HTTP server listens, as the Node object tells it; 0 is none.
	ServePort int32
	// API is where pods of this node reach the API server, if not by its Service.
	API netip.AddrPort
	// ClusterDNS are the cluster's DNS servers, ClusterDomain its domain, by default the
	// customary cluster.local.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the node's resolver configuration. Defaults to /etc/resolv.conf.
	ResolvConf string
	// PodCIDR is the node's pod range, written to a new Node object; empty leaves it to others.
	PodCIDR string
	// Labels and Taints are given to the Node object when it is first registered; labels also later.
	Labels map[string]string
	Taints []v1.Taint
	// MaxPods is how many pods the node takes. Defaults to 110.
	MaxPods int64
	// Version is reported as kubeletVersion. Defaults to the binary's.
	Version string
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Recorder records events. Defaults to one that writes them through Client.
	Recorder record.EventRecorder
}

// defaultMaxPods is the documented default of the kubelet.
const defaultMaxPods = 110

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Name == "":
		return o, errors.New("the node needs a name")
	case o.Client == nil:
		return o, errors.New("the node needs an API client")
	case o.Endpoint == "":
		return o, errors.New("the node needs the endpoint of a container runtime")
	case o.RootDir == "":
		return o, errors.New("the node needs a root directory")
	case o.Owner == "":
		return o, errors.New("the node needs an owner label")
	case len(o.IPs) == 0:
		return o, errors.New("the node needs an IP address")
	}
	if o.ClusterDomain == "" {
		o.ClusterDomain = "cluster.local"
	}
	if o.ResolvConf == "" {
		o.ResolvConf = "/etc/resolv.conf"
	}
	if o.MaxPods == 0 {
		o.MaxPods = defaultMaxPods
	}
	if o.Version == "" {
		o.Version = version.Get().GitVersion
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, nil
}

// The times of the agent's own rounds.
const (
	// relistPeriod is how often the runtime is compared with what workers believe,
	// should an event have been missed.
	relistPeriod = 15 * time.Second
	relistJitter = 0.5
	// statusPeriod is how often the Node's status is written though nothing changed;
	// statusCheck how often it is computed.
	statusPeriod = 5 * time.Minute
	statusCheck  = 10 * time.Second
	unreadyCheck = 100 * time.Millisecond
	// leaseDuration and leaseRenewal are the kubelet's.
	leaseDuration = 40 * time.Second
	leaseRenewal  = 10 * time.Second
	// registerRetry is the pause before the Node is registered again.
	registerRetry = 200 * time.Millisecond
	connectLimit  = 10 * time.Second
	// leaveLimit is how long an agent that ends waits for what its workers have begun.
	leaveLimit = 1500 * time.Millisecond
)
