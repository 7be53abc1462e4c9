// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/servers"
)

// besideUpstream returns how many times faster background collection is than upstream's. Upstream's
// controller manager is limited to 20 requests a second by default; here it has no limit.
func besideUpstream(ctx context.Context, b *bench) (float64, error) {
	theirs, err := b.upstreamCollection(ctx)
	if err != nil {
		return 0, fmt.Errorf("upstream: %w", err)
	}
	ours, err := collect(background, dependents, 1)(ctx, b)
	fmt.Printf("  Kindred %.0f/s, upstream %.0f/s\n", ours, theirs)
	return ours / theirs, err
}

// upstreamCollection returns how many dependents a second upstream's garbage collector deletes.
func (b *bench) upstreamCollection(ctx context.Context) (float64, error) {
	u, err := b.startUpstream(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer u.stop()
	configMaps := u.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := plant(ctx, configMaps, dependents, 1)
	if err != nil {
		return 0, err
	}
	took, err := fell(ctx, configMaps, owner, background, dependents)
	return dependents / took.Seconds(), err
}

// workloadBesideUpstream returns the function that measures how many times longer upstream takes for a
// workload. Upstream's nodes are simulated by this program.
func workloadBesideUpstream(w workload) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		theirs, err := b.upstreamWorkload(ctx, w)
		if err != nil {
			return 0, fmt.Errorf("upstream: %w", err)
		}
		ours, err := on20Nodes(w)(ctx, b)
		fmt.Printf("  Kindred %.2f s, upstream %.2f s\n", ours, theirs)
		return theirs / ours, err
	}
}

func (b *bench) upstreamWorkload(ctx context.Context, w workload) (seconds float64, err error) {
	u, err := b.startUpstream(ctx, 20)
	if err != nil {
		return 0, err
	}
	defer u.stop()
	if err := w.prepared(ctx, u); err != nil {
		return 0, err
	}
	return w.timed(ctx, u, "upstream", u.server.ProcessorTime)
}

// upstream is a running control plane of upstream.
type upstream struct {
	*kubernetes.Clientset
	server *servers.Server
	stop   func()
}

// unlimited are the flags of upstream's programs without a limit on their requests.
var unlimited = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// startUpstream starts upstream's control plane with simulated nodes, and its scheduler if it has any.
func (b *bench) startUpstream(ctx context.Context, nodes int) (*upstream, error) {
	programs, err := servers.BuildControlPlane(ctx, "test/servers")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.scratch, "upstream")
	if err != nil {
		return nil, err
	}
	// The nodes have no heartbeats.
	server, err := programs.Start(ctx, dir, true, append(unlimited, "--concurrent-gc-syncs=100", "--node-monitor-grace-period=1h")...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	u := &upstream{server: server, stop: sync.OnceFunc(func() {
		cancel()
		server.Stop()
	})}
	if nodes > 0 {
		err = errors.Join(programs.Schedule(ctx, server, dir, unlimited...), startNodes(ctx, server.Config, nodes))
	}
	if err == nil {
		u.Clientset, err = upstreamClient(server.Config)
	}
	if err != nil {
		u.stop()
		return nil, err
	}
	return u, nil
}

// upstreamClient returns a client with its own connection: a server closes the watches of a client that
// does not keep up, and a shared connection delays all of them.
func upstreamClient(config *rest.Config) (*kubernetes.Clientset, error) {
	config = withOwnConnection(config)
	config.ContentType, config.Timeout, config.QPS = runtime.ContentTypeProtobuf, 0, -1
	return kubernetes.NewForConfig(config)
}
