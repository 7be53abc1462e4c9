// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pinPrefix has a key for each pin. Its value is the pinned revision.
	pinPrefix = ownPrefix + "history/pins/"
	// pinTime is the lifetime of a pin that is not removed. It is longer than a request (the API
	// server's --request-timeout is a minute), so that successive requests of one task find
	// their revision, and short, because a process that is killed removes no pins.
	pinTime = 2 * time.Minute
)

// Pin implements deletion.History. Pins are in etcd, where every server that compacts finds
// them. There is no race with a compaction: one decided without this pin fails (see
// compactor.mark), and one announced before is seen here.
func (h *History) Pin(ctx context.Context, revision int64) (unpin func(), err error) {
	client := h.backend.client.Client
	lease, err := client.Grant(ctx, int64(pinTime.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	unpin = func() { _, _ = client.Revoke(ctx, lease.ID) } // on error, the lease expires
	pinned, err := client.Txn(ctx).Then(
		clientv3.OpPut(pinPrefix+strconv.FormatInt(int64(lease.ID), 16), strconv.FormatInt(revision, 10), clientv3.WithLease(lease.ID)),
		clientv3.OpGet(upstreamCompactKey),
	).Commit()
	if err != nil {
		unpin()
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	if announced := smallest(pinned.Responses[1].GetResponseRange().Kvs); announced > revision {
		unpin()
		return nil, h.notRetained(revision, announced)
	}
	return unpin, nil
}

// smallest returns the smallest of the revisions in the values of keys; 0 if there are none. It
// ignores malformed values, which must not block compaction for good.
func smallest(kvs []*mvccpb.KeyValue) (least int64) {
	for _, kv := range kvs {
		revision, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err == nil && revision > 0 && (least == 0 || revision < least) {
			least = revision
		}
	}
	return least
}
