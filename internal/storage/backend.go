// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

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

// Backend is a connection to an etcd that has answered. All resources share it.
type Backend struct {
	client    *kubernetes.Client
	clock     clock.Clock
	compactor *compactor
	// recordWriter is also part of client; the fast path of deletions calls it directly.
	recordWriter recordWriter
	open         openResources
	records      *records
	// transformers encrypt values as configured by encryption; nil if nothing is encrypted.
	transformers value.ResourceTransformers
	encryption   Encryption
	// stop ends the embedded server; nil if etcd is external.
	stop   func()
	failed *failure
	shared bool
	// dir is the data directory of the embedded server.
	dir     string
	started atomic.Bool
	status  *namedClient
	close   sync.Once
}

// newBackend returns a Backend. Its compactor also calls the given functions, once a minute.
func newBackend(ctx context.Context, client *clientv3.Client, endpoint string, c clock.Clock, r Retention, then ...func(context.Context) error) *Backend {
	ctx, cancel := context.WithCancel(ctx)
	status := &namedClient{Client: client, endpoint: endpoint, cancel: cancel}
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, status, storage.RequestWatchProgress)
	leases := &leases{client: client, clock: c, ttl: r.Deletions}
	plain := &kubernetes.Client{Client: client}
	b := &Backend{
		clock:        c,
		status:       status,
		recordWriter: recordWriter{plain, client, leases},
		open:         openResources{byResource: map[schema.GroupResource][]*openResource{}},
		records:      &records{client, leases},
	}
	b.compactor = newCompactor(client, c, r, b.inUse)
	b.client = &kubernetes.Client{Client: client, Kubernetes: readWindow{b.recordWriter, b.compactor}}
	b.compactor.then = append(append(b.compactor.then, b.records.prune), then...)
	b.compactor.start()
	return b
}

// inUse returns how many bytes of the database are in use.
func (b *Backend) inUse(ctx context.Context) (int64, error) {
	status, err := b.status.Status(ctx, b.status.endpoint)
	if err != nil {
		return 0, fmt.Errorf("the size of etcd's database: %w", err)
	}
	return status.DbSizeInUse, nil
}

// Shared reports whether other processes may use the same etcd.
func (b *Backend) Shared() bool { return b.shared }

// IsEmbedded reports whether etcd runs in this process.
func (b *Backend) IsEmbedded() bool { return b.stop != nil }

// Revision returns the revision of the latest write.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	answer, err := b.client.Client.Get(ctx, Prefix)
	if err != nil {
		return 0, fmt.Errorf("etcd does not answer: %w", err)
	}
	return uint64(answer.Header.Revision), nil
}

// Client returns the etcd client.
func (b *Backend) Client() *clientv3.Client { return b.client.Client }

// Failed returns a channel that gets at most one error: why the embedded etcd cannot continue.
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

// Close closes the client and stops an embedded server. Every acknowledged write is on disk
// already.
func (b *Backend) Close() {
	b.close.Do(func() {
		if b.failed != nil && b.failed.happened.Load() {
			return // its goroutines are blocked for good (see failure): do not wait for them
		}
		b.shutDown()
	})
}

func (b *Backend) shutDown() {
	b.status.close()
	b.compactor.Stop()
	_ = b.client.Close()
	if b.stop != nil {
		b.stop()
	}
}

// namedClient gives an in-process client, which has no endpoints, an endpoint for the feature
// check of k8s.io/apiserver. Without one the check would find no features, and consistent
// lists would never come from the watch cache (KEP-2340). The check runs in the background:
// close waits for a running Status and refuses later ones.
type namedClient struct {
	*clientv3.Client
	endpoint string
	cancel   context.CancelFunc

	mu     sync.RWMutex
	closed bool
}

func (n *namedClient) Endpoints() []string { return []string{n.endpoint} }

func (n *namedClient) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return nil, context.Canceled
	}
	return n.Client.Status(ctx, endpoint)
}

func (n *namedClient) close() {
	n.cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}
