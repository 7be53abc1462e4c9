// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kindred runs a Kubernetes cluster inside a Go program: API,
// controllers, garbage collector, scheduler and node, in this process.
//
//	cluster, err := kindred.Start(ctx, kindred.Options{DataDir: dir, SimulatedNodes: 3, NoNode: true})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//	client, err := kubernetes.NewForConfig(cluster.Config())
//
// Several clusters can run in one process, each with its own data directory.
// Tests that should not depend on Kindred's own dependencies use the module
// kindredtest, which runs the kindred binary instead.
package kindred

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/cluster"
	"github.com/kindred-project/kindred/internal/storage"
)

// Defaults of Options. The address and ranges are upstream's customary ones.
const (
	DefaultBindAddress = "127.0.0.1"
	DefaultServiceCIDR = "10.96.0.0/16"
	// DefaultReserveDisk is how many bytes must stay free on the disk of the data
	// directory: below it, writes are refused and /readyz fails.
	DefaultReserveDisk = 256 << 20
)

// Defaults of what is remembered.
var (
	DefaultHistoryRetention = storage.DefaultRetention.Age
	DefaultHistorySize      = storage.DefaultRetention.Size
	DefaultDeletionRecords  = storage.DefaultRetention.Deletions
)

// Options say which cluster to start. Only DataDir is required.
type Options struct {
	// DataDir holds everything the cluster keeps. It is created, or taken over
	// from an earlier cluster; a directory with anything else in it is refused.
	DataDir string
	// BindAddress is the IP address the API listens on; 127.0.0.1 if empty.
	BindAddress string
	// SecurePort is the port of the API; 0 picks a free one.
	SecurePort int
	// EtcdServers are the URLs of an external etcd, used instead of the embedded
	// one, with the files of its CA and of a client certificate and key.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// EncryptionProviderConfig is a file with an EncryptionConfiguration of
	// apiserver.config.k8s.io: what is encrypted before it reaches etcd, and by
	// which keys. With EncryptionProviderConfigAutomaticReload it is read again
	// when it changes.
	EncryptionProviderConfig                string
	EncryptionProviderConfigAutomaticReload bool
	// HistoryRetention is how long past states of objects can be read, those of deleted
	// ones too; DefaultHistoryRetention if 0. Less than 5 minutes is refused.
	HistoryRetention time.Duration
	// HistorySize is how many bytes of etcd's database may be in use before older history
	// goes early, though none that is younger than 5 minutes; DefaultHistorySize if 0.
	HistorySize int64
	// DeletionRecords is how long it is remembered who deleted what; DefaultDeletionRecords
	// if 0. Less than a minute is refused.
	DeletionRecords time.Duration
	// ContainerRuntimeEndpoint is the CRI v1 endpoint of a container runtime
	// (unix:///run/containerd/containerd.sock). If it is empty, Kindred starts a
	// containerd of its own.
	ContainerRuntimeEndpoint string
	// SimulatedNodes is how many nodes to simulate, beside or without a real one.
	SimulatedNodes int
	// NoNode keeps this machine from being a node.
	NoNode bool
	// NodeName is the name of this machine's node; the host name if empty.
	NodeName string
	// PodCIDR is the range of this node's pods; a free /24 of 10.244.0.0/16 if
	// empty. ServiceCIDR is the range of ClusterIPs; 10.96.0.0/16 if empty.
	PodCIDR, ServiceCIDR string
	// RuntimeConfig turns versions and resources of the built-in API groups on and off, as
	// the --runtime-config of upstream's API server: {"autoscaling/v1": "false"}.
	RuntimeConfig map[string]string
	// ReserveDisk is in bytes; DefaultReserveDisk if 0.
	ReserveDisk uint64
	// Authentication and Authorization trust services outside of the cluster.
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions
	// Audit, if set, is the record that is kept of requests. It begins with
	// NewAuditOptions.
	Audit *AuditOptions
	// Version is the program's own, for those who ask what runs here.
	Version string
	// Clock is where the cluster's logic takes its time from; the real one if nil.
	// What the libraries stamp themselves (deletion timestamps, certificates,
	// leases of etcd) stays real.
	Clock clock.WithTicker
	// Progress, if set, is told of each step of the start and of the time it took.
	Progress func(step string, took time.Duration)
	// Notice, if set, is told what a user should know, a line at a time.
	Notice func(line string)
}

// Cluster is a cluster that runs in this process.
type Cluster struct{ running *cluster.Cluster }

// Start starts a cluster and returns when it is ready: when the API,
// controllers and scheduler work and a node is ready, if one was asked for. When
// ctx is done before that, Start stops what it started and returns an error; the
// context has no effect on a cluster that is ready.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	config, err := options.resolve(ctx)
	if err != nil {
		return nil, err
	}
	running, err := cluster.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Cluster{running}, nil
}

// Config is a client configuration with all rights. It works in this process
// alone, by function calls; for others there is Kubeconfig.
func (c *Cluster) Config() *rest.Config { return c.running.RESTConfig() }

// Kubeconfig is the path of a kubeconfig with all rights.
func (c *Cluster) Kubeconfig() string { return c.running.Kubeconfig() }

// Server is the URL of the API.
func (c *Cluster) Server() string { return c.running.Server() }

// Failed tells, at most once, why the cluster cannot go on: its store failed,
// or a part ended. The caller should Stop it.
func (c *Cluster) Failed() <-chan error { return c.running.Failed() }

// Stop stops the cluster. Containers run on; the next cluster on the same data
// directory takes them over.
func (c *Cluster) Stop() { c.running.Stop() }
