// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/part"
)

// Node is a node without an API server in this process.
type Node struct {
	config  Config
	lock    *datadir.Lock
	keys    *pki.PKI // nil if the node is one of a cluster
	server  string   // URL of the agent, or of the cluster's API
	parts   *part.Group
	failure chan error
	stop    sync.Once
}

// StartNode starts the agent of this machine without an API server, and returns when the node is ready.
func StartNode(ctx context.Context, config Config) (*Node, error) {
	return startNode(ctx, config, (*Node).standAlone)
}

// startNode starts a node, and stops it if that fails.
func startNode(ctx context.Context, config Config, run func(*Node, context.Context, *steps) error) (_ *Node, err error) {
	if missing := containerd.Missing(); config.RuntimeEndpoint == "" && len(missing) > 0 {
		return nil, errors.New("missing " + strings.Join(missing, ", ") + "; " + containerd.HowToGet(missing))
	}
	n := &Node{config: config, failure: make(chan error, 1)}
	given := ctx
	ctx, abort := context.WithCancelCause(ctx)
	n.parts = part.NewGroup(func(err error) {
		select {
		case n.failure <- err:
		default:
		}
		abort(err)
	})
	defer func() {
		if err == nil {
			return
		}
		if given.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the failure, not the error of the step that waited
		}
		n.Stop()
	}()
	steps := newSteps(config)
	if n.lock, err = config.Dir.Lock(); err != nil {
		return nil, err
	}
	return n, run(n, ctx, steps)
}

// standAlone starts the agent without an API.
func (n *Node) standAlone(ctx context.Context, steps *steps) (err error) {
	m := prepareMachine(ctx, n.config, steps)
	if n.keys, err = pki.Open(n.config.Dir.PKI(), n.config.Clock); err != nil {
		return err
	}
	steps.done("certificates")
	address, err := m.StandAlone(ctx, n.keys, n.parts)
	if err != nil {
		return err
	}
	n.server = "https://" + address
	n.parts.Start("certificates", func(ctx context.Context) error { return renewCertificates(ctx, n.keys, n.config.Clock) })
	if err := n.writeKubeconfig(); err != nil {
		return err
	}
	return n.writeInstance(m, "")
}

// writeInstance stores what runs in the data directory; server is the URL of the API, if there is one.
func (n *Node) writeInstance(m *machine.Machine, server string) error {
	return n.config.Dir.WriteInstance(datadir.Instance{
		PID: os.Getpid(), Version: n.config.Version, StartedAt: n.config.Clock.Now(), Server: server,
		NodeName: n.config.NodeName, ContainerRuntime: m.Endpoint(), KubeletDir: n.config.KubeletDir,
	})
}

// writeKubeconfig writes a kubeconfig for the agent's server, again whenever its certificate is renewed.
func (n *Node) writeKubeconfig() error {
	write := func(admin *pki.Pair) error {
		return pki.Kubeconfig{
			Name: contextName, Server: n.server, CA: n.keys.Cluster.CertPEM, User: adminUser.Name, Credentials: admin,
		}.Write(n.Kubeconfig())
	}
	admin, err := n.keys.Keep(n.keys.Admin, write)
	if err != nil {
		return err
	}
	return write(admin.Pair())
}

// Kubeconfig returns the path of the kubeconfig for the agent's server.
func (n *Node) Kubeconfig() string { return n.config.Dir.Kubeconfig() }

// Server returns the URL of the API of the node's cluster; that of the agent itself, if it has no cluster.
func (n *Node) Server() string { return n.server }

// Failed returns a channel that gets at most one error: why the node cannot continue.
func (n *Node) Failed() <-chan error { return n.failure }

// Stop stops the agent. Containers keep running.
func (n *Node) Stop() {
	n.stop.Do(func() {
		n.parts.Stop(clock.RealClock{}, stopLimit)
		if n.lock != nil {
			_ = n.lock.Release()
		}
	})
}
