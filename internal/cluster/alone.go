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
	"github.com/kindred-project/kindred/internal/part"
)

// Node is a node without an API server.
type Node struct {
	config  Config
	lock    *datadir.Lock
	keys    *pki.PKI
	server  string // URL of the agent
	parts   *part.Group
	failure chan error
	stop    sync.Once
}

// StartNode starts the agent of this machine without an API server, and returns when the node is ready.
func StartNode(ctx context.Context, config Config) (_ *Node, err error) {
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
	m := prepareMachine(ctx, config, steps)
	if n.keys, err = pki.Open(config.Dir.PKI(), config.Clock); err != nil {
		return nil, err
	}
	steps.done("certificates")
	address, err := m.StandAlone(ctx, n.keys, n.parts)
	if err != nil {
		return nil, err
	}
	n.server = "https://" + address
	n.parts.Start("certificates", func(ctx context.Context) error { return renewCertificates(ctx, n.keys, config.Clock) })
	if err := n.writeKubeconfig(); err != nil {
		return nil, err
	}
	return n, config.Dir.WriteInstance(datadir.Instance{
		PID: os.Getpid(), Version: config.Version, StartedAt: config.Clock.Now(),
		NodeName: config.NodeName, ContainerRuntime: m.Endpoint(), KubeletDir: config.KubeletDir,
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
