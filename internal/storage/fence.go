// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// leaderKey has the name of the server that leads. Each term of a leader begins with a write of it.
const leaderKey = ownPrefix + "leader"

// Fence belongs to one term of a leader. A write of an object under a fence fails once another term has begun, which the transaction of
// the write checks: a server that was stopped, or cut off, and still believes that it leads cannot change any object. Leases alone
// do not ensure that, because the holder may notice too late that its lease has expired.
type Fence struct {
	revision int64
	lost     func()
}

// NewFence begins a term: writes under earlier fences fail from now on. lost is called whenever a write fails because another term
// has begun.
func (b *Backend) NewFence(ctx context.Context, leader string, lost func()) (*Fence, error) {
	answer, err := b.client.Client.Put(ctx, leaderKey, leader)
	if err != nil {
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	return &Fence{answer.Header.Revision, lost}, nil
}

type fenceKey struct{}

// Under returns a context whose writes are under the fence.
func (f *Fence) Under(ctx context.Context) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// fenceFrom returns the fence of a write; nil if there is none.
func fenceFrom(ctx context.Context) *Fence {
	fence, _ := ctx.Value(fenceKey{}).(*Fence)
	return fence
}

// holds is the condition of a transaction under the fence.
func (f *Fence) holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(leaderKey), "=", f.revision)
}

// check returns an error if the fence did not hold, according to a read of leaderKey.
func (f *Fence) check(read *pb.RangeResponse) error {
	leader := "no server"
	for _, kv := range read.GetKvs() {
		if kv.ModRevision == f.revision {
			return nil
		}
		leader = string(kv.Value)
	}
	f.lost()
	return apierrors.NewServiceUnavailable(fmt.Sprintf("this server does not lead the cluster any more: %s does", leader))
}
