// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"
)

var errClosed = errors.New("the store is closed")

// closeLimit is the time that requests in progress get to end before the store closes all the same.
const closeLimit = 5 * time.Second

// gate passes requests to an embedded server, until it is closed. A network connection would refuse
// requests to a stopped server. Without one, they would read from files that are closed: the watch caches
// of a failed start may still be reading.
type gate struct {
	clientv3.KV
	// alone is set if the server is the only member of its cluster. Every write that was acknowledged has been applied there, so that its state
	// is the latest. A read need not ask raft, which is what makes reads of other clusters linearizable, and costs several goroutines a turn.
	alone bool
	// watched is the latest revision of an event that a watch has received.
	watched atomic.Int64

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// pass runs a request.
func (g *gate) pass(request func()) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errClosed
	}
	g.running.Add(1)
	g.mu.Unlock()
	defer g.running.Done()
	request()
	return nil
}

// close refuses new requests, and waits for those in progress.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-clock.RealClock{}.After(closeLimit):
	}
}

func (g *gate) Do(ctx context.Context, op clientv3.Op) (response clientv3.OpResponse, err error) {
	if refused := g.pass(func() { response, err = g.KV.Do(ctx, op) }); refused != nil {
		return clientv3.OpResponse{}, refused
	}
	return response, err
}

func (g *gate) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if !g.alone {
		return g.get(ctx, key, options)
	}
	watched := g.watched.Load()
	response, err := g.get(ctx, key, append(slices.Clip(options), clientv3.WithSerializable()))
	if err == nil && response.Header.Revision >= watched {
		return response, nil
	}
	// etcd sends the events of a write shortly before readers see it, and its revision is in the future for them. A caller that knows of the
	// write must find it: raft waits until it is applied.
	return g.get(ctx, key, options)
}

func (g *gate) get(ctx context.Context, key string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	response, err := g.Do(ctx, clientv3.OpGet(key, options...))
	return response.Get(), err
}

// received notes the revision of an event before a watch passes it on.
func (g *gate) received(revision int64) {
	for watched := g.watched.Load(); watched < revision; watched = g.watched.Load() {
		if g.watched.CompareAndSwap(watched, revision) {
			return
		}
	}
}

func (g *gate) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	response, err := g.Do(ctx, clientv3.OpPut(key, value, options...))
	return response.Put(), err
}

func (g *gate) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	response, err := g.Do(ctx, clientv3.OpDelete(key, options...))
	return response.Del(), err
}

func (g *gate) Compact(ctx context.Context, revision int64, options ...clientv3.CompactOption) (response *clientv3.CompactResponse, err error) {
	if refused := g.pass(func() { response, err = g.KV.Compact(ctx, revision, options...) }); refused != nil {
		return nil, refused
	}
	return response, err
}

func (g *gate) Txn(ctx context.Context) clientv3.Txn { return gatedTxn{g.KV.Txn(ctx), g} }

type gatedTxn struct {
	clientv3.Txn
	gate *gate
}

func (t gatedTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	return gatedTxn{t.Txn.If(conditions...), t.gate}
}
func (t gatedTxn) Then(ops ...clientv3.Op) clientv3.Txn { return gatedTxn{t.Txn.Then(ops...), t.gate} }
func (t gatedTxn) Else(ops ...clientv3.Op) clientv3.Txn { return gatedTxn{t.Txn.Else(ops...), t.gate} }

func (t gatedTxn) Commit() (response *clientv3.TxnResponse, err error) {
	if refused := t.gate.pass(func() { response, err = t.Txn.Commit() }); refused != nil {
		return nil, refused
	}
	return response, err
}
