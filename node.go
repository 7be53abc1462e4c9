// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/cluster"
)

// NodeOptions configure a node without an API server. DataDir and static pods are required.
type NodeOptions struct {
	// StaticPods is the directory, or the file, with the manifests of the pods. If it is empty, KubeletConfig must have a
	// staticPodPath or a staticPodURL.
	StaticPods string
	// DataDir, NodeName, KubeletConfig, KubeletConfigDir, ContainerRuntimeEndpoint and PodCIDR are as in Options.
	DataDir, NodeName, KubeletConfig, KubeletConfigDir, ContainerRuntimeEndpoint, PodCIDR string
	// Flags is as in Options.
	Flags map[string]string
	// Version, Clock, Progress and Notice are as in Options.
	Version  string
	Clock    clock.WithTicker
	Progress func(step string, took time.Duration)
	Notice   func(line string)
}

// Node is a node agent that runs in this process, without an API server in it.
type Node struct{ running *cluster.Node }

// StartNode starts the node agent of this machine without an API server, and returns when it is ready. It runs static pods.
func StartNode(ctx context.Context, options NodeOptions) (*Node, error) {
	config, err := Options{
		DataDir: options.DataDir, NodeName: options.NodeName, KubeletConfig: options.KubeletConfig, KubeletConfigDir: options.KubeletConfigDir,
		ContainerRuntimeEndpoint: options.ContainerRuntimeEndpoint, PodCIDR: options.PodCIDR, Flags: options.Flags,
		Version: options.Version, Clock: options.Clock, Progress: options.Progress, Notice: options.Notice,
	}.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if options.StaticPods != "" {
		if config.Kubelet.StaticPodPath, err = filepath.Abs(options.StaticPods); err != nil {
			return nil, invalid("static pods: %v", err)
		}
	}
	if config.Kubelet.StaticPodPath+config.Kubelet.StaticPodURL == "" {
		return nil, invalid("a node without an API server needs static pods: name their directory, or set staticPodPath or staticPodURL in the kubelet configuration")
	}
	running, err := cluster.StartNode(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Node{running}, nil
}

// ErrMoved is the failure of a node whose machine reaches the server from another address than at its start. It can join again at once,
// with the new address; its containers run on.
var ErrMoved = cluster.ErrMoved

// Kubeconfig returns the path of a kubeconfig for the HTTP server of the node agent, which serves /pods, for example.
func (n *Node) Kubeconfig() string { return n.running.Kubeconfig() }

// Server returns the URL of the API of the node's cluster; that of the agent itself, if it has no cluster.
func (n *Node) Server() string { return n.running.Server() }

// Failed returns a channel that gets at most one error: why the node cannot continue. The caller should then call Stop.
func (n *Node) Failed() <-chan error { return n.running.Failed() }

// Stop stops the agent. Containers keep running; the next agent on the same data directory adopts them.
func (n *Node) Stop() { n.running.Stop() }
