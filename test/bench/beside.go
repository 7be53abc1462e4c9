// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
// controller manager is limited to 20 requests a second by default; here it has no limit, and its
// etcd does not fsync.
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
	client, stop, err := b.upstream(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := plant(ctx, configMaps, dependents, 1)
	if err != nil {
		return 0, err
	}
	took, err := fell(ctx, configMaps, owner, background, dependents)
	return dependents / took.Seconds(), err
}

// upstream starts upstream's control plane and returns a client for it.
func (b *bench) upstream(ctx context.Context) (client *kubernetes.Clientset, stop func(), err error) {
	programs, err := servers.BuildControlPlane(ctx, "test/servers")
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp(b.scratch, "upstream")
	if err != nil {
		return nil, nil, err
	}
	server, err := programs.Start(ctx, dir, "--kube-api-qps=100000", "--kube-api-burst=100000")
	if err != nil {
		return nil, nil, err
	}
	config := rest.CopyConfig(server.Config)
	config.ContentType, config.Timeout, config.QPS = runtime.ContentTypeProtobuf, 0, -1
	client, err = kubernetes.NewForConfig(config)
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return client, sync.OnceFunc(func() { server.Stop() }), nil
}
