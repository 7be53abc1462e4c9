// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage is etcd, inside the process or outside of it. Both are one
// etcd client to the rest of Kindred: every resource's storage shares it, and
// with it one compactor and one health check.
package storage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"
)

// Backend is an etcd that answers.
type Backend struct {
	client    *kubernetes.Client
	clock     clock.Clock
	compactor *compactor
	kept      keptResources
	records   *records
	// transformers encrypt values, as encryption says; nil if nothing is.
	transformers value.ResourceTransformers
	encryption   Encryption
	// stop ends the embedded server; nil for an external one.
	stop   func()
	failed *failure
	// dir is the directory of the embedded server.
	dir     string
	started atomic.Bool
	asked   *named
	close   sync.Once
}

// newBackend is a Backend whose compactor also calls the given functions each minute.
func newBackend(ctx context.Context, client *clientv3.Client, endpoint string, c clock.Clock, r Retention, then ...func(context.Context) error) *Backend {
	ctx, cancel := context.WithCancel(ctx)
	asked := &named{Client: client, endpoint: endpoint, cancel: cancel}
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, asked, storage.RequestWatchProgress)
	leases := &leases{client: client, clock: c, ttl: r.Deletions}
	kube := &kubernetes.Client{Client: client}
	kube.Kubernetes = recording{kube, client, leases}
	b := &Backend{
		client:  kube,
		clock:   c,
		asked:   asked,
		kept:    keptResources{resources: map[schema.GroupResource][]*kept{}},
		records: &records{client, leases},
	}
	b.compactor = newCompactor(client, c, r, b.inUse)
	kube.Kubernetes = expiring{kube.Kubernetes, b.compactor}
	b.compactor.then = append(append(b.compactor.then, b.records.prune), then...)
	b.compactor.start()
	return b
}

// inUse is how many bytes of the database are in use.
func (b *Backend) inUse(ctx context.Context) (int64, error) {
	status, err := b.asked.Status(ctx, b.asked.endpoint)
	if err != nil {
		return 0, fmt.Errorf("the size of etcd's database: %w", err)
	}
	return status.DbSizeInUse, nil
}

// Shared tells whether other processes may use the etcd too.
func (b *Backend) Shared() bool { return b.stop == nil }

// Revision is that of the latest write.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	answer, err := b.client.Client.Get(ctx, Prefix)
	if err != nil {
		return 0, fmt.Errorf("etcd does not answer: %w", err)
	}
	return uint64(answer.Header.Revision), nil
}

// Client speaks to the etcd.
func (b *Backend) Client() *clientv3.Client { return b.client.Client }

// Failed reports, at most once, that the embedded etcd cannot go on.
func (b *Backend) Failed() <-chan error {
	if b.failed == nil {
		return nil
	}
	return b.failed.reported
}

// Check is a health check: it reads one key with a quorum.
func (b *Backend) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := b.client.Client.Get(ctx, "/registry/health"); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}

// Close ends the client and, where it is embedded, the server. All that was
// acknowledged is on disk before.
func (b *Backend) Close() {
	b.close.Do(func() {
		if b.failed != nil && b.failed.happened.Load() {
			return // its goroutines are held; waiting for them would last for ever
		}
		b.asked.close()
		b.compactor.Stop()
		_ = b.client.Close()
		if b.stop != nil {
			b.stop()
		}
	})
}

// named gives an in-process client, which has no endpoints, a name to be asked
// by: without an endpoint the check of features would find none, and consistent
// lists would never come from the watch cache (KEP-2340). The check asks in the
// background: a store that is closed at once must wait for it, and be asked no
// more.
type named struct {
	*clientv3.Client
	endpoint string
	cancel   context.CancelFunc

	mu     sync.RWMutex
	closed bool
}

func (n *named) Endpoints() []string { return []string{n.endpoint} }

func (n *named) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return nil, context.Canceled
	}
	return n.Client.Status(ctx, endpoint)
}

func (n *named) close() {
	n.cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}
