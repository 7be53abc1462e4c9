// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster is the one place that puts the parts of Kindred together: it
// knows the order of start, what ready means and how to stop. Every part is
// handed plain values and clients; no part knows another.
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
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/storage"
)

// CheckRuntimeConfig reports what is wrong with a RuntimeConfig.
func CheckRuntimeConfig(config map[string]string) error { return apiserver.CheckRuntimeConfig(config) }

// Config says which cluster to run. Everything is resolved: there are no
// defaults here but the clock's.
type Config struct {
	Dir datadir.Layout
	// BindAddress and Port are where the API listens; port 0 is any free one.
	BindAddress net.IP
	Port        int
	// Etcd is an external store; no servers means the embedded one.
	Etcd storage.External
	// History is how much of its past the store keeps.
	History storage.Retention
	// ServiceCIDR is where ClusterIPs come from.
	ServiceCIDR netip.Prefix
	// PodCIDR is the range of the real node's pods; the zero value lets the
	// pod network choose a free one.
	PodCIDR netip.Prefix
	// Node is whether this machine is a node, NodeName its name.
	Node     bool
	NodeName string
	// RuntimeEndpoint is the CRI endpoint of a runtime the user provides; empty
	// means a private containerd.
	RuntimeEndpoint string
	// SimulatedNodes is how many nodes to simulate.
	SimulatedNodes int
	// ReserveDisk is how many bytes must stay free for writes to be accepted.
	ReserveDisk uint64
	// RuntimeConfig turns built-in API versions and resources on and off.
	RuntimeConfig map[string]string
	// Authentication and Authorization are who outside has a say in who may come in.
	Authentication authentication.Config
	Authorization  authorization.Config
	// Audit is the record that is kept of requests.
	Audit audit.Config
	// Encryption is what encrypts values in etcd.
	Encryption storage.Encryption
	// Version is reported to users.
	Version string
	Clock   clock.WithTicker
	// Progress is told of each step that is done, and how long it took.
	Progress func(step string, took time.Duration)
	// Notice is told what a user should know: one line.
	Notice func(line string)
}
