// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// upstreamCompactKey is the key by which upstream's API servers elect the one that compacts: a
// server that finds the key written by another one does not compact. Kindred writes it with
// each mark, so that an upstream server on the same etcd does not compact the history that
// Kindred retains, as long as Kindred runs.
const upstreamCompactKey = "compact_rev_key"

// compactor removes history from etcd that is older than the retention's age. While the database
// is larger than the retention's size, it also removes half of the rest each time.
//
// If several servers share one etcd, the one that writes a mark compacts.
type compactor struct {
	client    *clientv3.Client
	clock     clock.Clock
	retention Retention
	// inUse returns how many bytes of the database are in use.
	inUse func(context.Context) (int64, error)
	// then are called once in markEvery, by the server that compacts.
	then []func(context.Context) error

	marks marks
	// loaded is true once the marks of earlier processes were read. Only run uses it.
	loaded bool

	mu sync.Mutex
	// compacted is the oldest revision that may still be readable.
	compacted int64

	cancel context.CancelFunc
	ended  chan struct{}
}

var _ etcd3.Compactor = &compactor{}

func newCompactor(client *clientv3.Client, c clock.Clock, r Retention, inUse func(context.Context) (int64, error)) *compactor {
	return &compactor{client: client, clock: c, retention: r, inUse: inUse}
}

func (c *compactor) start() {
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		c.run(ctx)
	}()
}

// Stop stops the compactor and waits for it.
func (c *compactor) Stop() {
	c.cancel()
	<-c.ended
}

func (c *compactor) run(ctx context.Context) {
	for {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot compact the history, will retry")
		}
		timer := c.clock.NewTimer(markEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// CompactRevision implements etcd3.Compactor. It is later than the last compaction, because clients of the API may only read
// revisions of the last few minutes.
func (c *compactor) CompactRevision() int64 {
	return c.marks.latest(c.clock.Now().Add(-watchable)).revision
}

// round writes a mark and compacts, unless another server has just done so.
func (c *compactor) round(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	seen, err := c.follow(ctx)
	if err != nil {
		return err
	}
	if since := c.clock.Since(seen.mark.at); seen.mark.revision > 0 && since >= 0 && since < markEvery/2 {
		return nil
	}
	target, err := c.target(ctx, seen.pinned)
	if err != nil {
		return err
	}
	marked, err := c.mark(ctx, seen, target)
	if err != nil || !marked {
		return err
	}
	failed := c.compact(ctx, target)
	for _, then := range c.then {
		failed = errors.Join(failed, then(ctx))
	}
	return failed
}

// load reads the marks of earlier processes.
func (c *compactor) load(ctx context.Context) error {
	if c.loaded {
		return nil
	}
	found, err := readMarks(ctx, c.client)
	if err != nil {
		return err
	}
	for _, m := range found {
		c.marks.add(m)
	}
	c.loaded = true
	return nil
}

// snapshot is what a round read from etcd.
type snapshot struct {
	revision int64 // at which it was read
	mark     mark  // the last one
	pinned   int64 // the oldest pinned revision; 0 if none is
}

// follow reads what other servers have marked, compacted and pinned.
func (c *compactor) follow(ctx context.Context) (seen snapshot, err error) {
	found, err := c.client.Txn(ctx).Then(
		clientv3.OpGet(markKey), clientv3.OpGet(upstreamCompactKey), clientv3.OpGet(pinPrefix, clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return seen, err
	}
	seen.revision = found.Header.Revision
	for _, kv := range found.Responses[0].GetResponseRange().Kvs {
		if seen.mark, err = markOf(kv); err != nil {
			return seen, err
		}
		c.marks.add(seen.mark)
	}
	c.forget(smallest(found.Responses[1].GetResponseRange().Kvs))
	seen.pinned = smallest(found.Responses[2].GetResponseRange().Kvs)
	return seen, nil
}

// mark writes a mark and reports whether it did: not if another server has written one or
// pinned a revision since the snapshot.
func (c *compactor) mark(ctx context.Context, seen snapshot, target int64) (bool, error) {
	now := c.clock.Now()
	written, err := c.client.Txn(ctx).
		If(
			clientv3.Compare(clientv3.ModRevision(markKey), "=", seen.mark.revision),
			clientv3.Compare(clientv3.ModRevision(pinPrefix).WithPrefix(), "<", seen.revision+1),
		).
		Then(
			clientv3.OpPut(markKey, now.UTC().Format(time.RFC3339Nano)),
			clientv3.OpPut(upstreamCompactKey, strconv.FormatInt(max(target, c.oldest()), 10)),
		).Commit()
	if err != nil || !written.Succeeded {
		return false, err
	}
	c.marks.add(mark{written.Header.Revision, now})
	return true, nil
}

// compact removes the history before a revision.
func (c *compactor) compact(ctx context.Context, target int64) error {
	if target <= c.oldest() {
		return nil
	}
	// Physical compaction: until it is done, the size of the database is not that of the rest.
	_, err := c.client.Compact(ctx, target, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	c.forget(target)
	return nil
}

// target returns the revision to compact to; 0 for none.
func (c *compactor) target(ctx context.Context, pinned int64) (int64, error) {
	size, err := c.inUse(ctx)
	if err != nil {
		return 0, err
	}
	return c.retention.target(extent{now: c.clock.Now(), marks: &c.marks, oldest: c.oldest(), pinned: pinned, size: size}), nil
}

// oldest returns the oldest revision that may still be readable; 0 if all may.
func (c *compactor) oldest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compacted
}

func (c *compactor) forget(before int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compacted = max(c.compacted, before)
	c.marks.forget(c.compacted)
}
