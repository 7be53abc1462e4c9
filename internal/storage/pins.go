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
	// pinPrefix has a key for each pin: its value is the revision that is held.
	pinPrefix = ownPrefix + "history/pins/"
	// pinTime is how long a pin holds that nobody ends. It is longer than a request can take
	// (the API server's --request-timeout is a minute), so that what is done in several, one
	// after the other, finds its revision; and short, as who was killed ends none.
	pinTime = 2 * time.Minute
)

// Pin implements deletion.History. Pins are in etcd, so that any server that compacts finds
// them. No compaction comes between: one that is decided without this pin fails (see
// compactor.mark), and one that is announced already is seen here.
func (h *History) Pin(ctx context.Context, revision int64) (unpin func(), err error) {
	client := h.backend.client.Client
	lease, err := client.Grant(ctx, int64(pinTime.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	unpin = func() { _, _ = client.Revoke(ctx, lease.ID) } // Or it ends by itself.
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

// smallest is the smallest of the revisions that are the values of keys; 0 if there is none.
// What is none is passed over: it must not keep history from being compacted for ever.
func smallest(kvs []*mvccpb.KeyValue) (least int64) {
	for _, kv := range kvs {
		revision, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err == nil && revision > 0 && (least == 0 || revision < least) {
			least = revision
		}
	}
	return least
}
