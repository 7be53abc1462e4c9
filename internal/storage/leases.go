// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"
)

// leases let keys expire. Keys that are written one after another share a lease, as events do
// in k8s.io/apiserver, because a lease costs a write.
type leases struct {
	client *clientv3.Client
	clock  clock.PassiveClock
	// ttl is the minimum lifetime of a key. It lives longer by at most the time during which
	// new keys get the same lease.
	ttl time.Duration

	mu     sync.Mutex
	lease  clientv3.LeaseID
	until  time.Time
	shared int
}

const (
	// shareDivisor is the part of a lease's time during which new keys get it.
	shareDivisor = 20
	// shareLimit is how many keys get the same lease: they expire in one transaction.
	shareLimit = 1000
)

// get returns a lease for one more key.
func (l *leases) get(ctx context.Context) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); l.shared == 0 || l.shared == shareLimit || now.After(l.until) {
		granted, err := l.client.Grant(ctx, int64((l.ttl + l.ttl/shareDivisor).Seconds()))
		if err != nil {
			return 0, err
		}
		l.lease, l.until, l.shared = granted.ID, now.Add(l.ttl/shareDivisor), 0
	}
	l.shared++
	return l.lease, nil
}

// drop makes the next key get a new lease if a write failed because the lease has expired.
func (l *leases) drop(err error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.shared = 0
	}
}
