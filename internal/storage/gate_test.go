// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"
)

// TestCloseWhileInUse: requests to a store that is being closed end with an error.
func TestCloseWhileInUse(t *testing.T) {
	for range 3 {
		b, err := Embedded(t.Context(), t.TempDir(), clock.RealClock{}, DefaultRetention)
		if err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		started := make(chan struct{}, 16)
		for range cap(started) {
			clients.Go(func() {
				for err := error(nil); err == nil; {
					_, err = b.Client().Get(t.Context(), "/", clientv3.WithFromKey(), clientv3.WithSerializable())
					if err == nil {
						_, err = b.Client().Txn(t.Context()).Then(clientv3.OpPut("/a", "b")).Commit()
					}
					select {
					case started <- struct{}{}:
					default:
					}
					if err != nil && !errors.Is(err, errClosed) {
						t.Error(err)
					}
				}
			})
		}
		for range cap(started) {
			<-started
		}
		b.Close()
		clients.Wait()
	}
}

// TestReadsAreLatest: a read of a store alone finds what was acknowledged before it, also right after the store was opened again.
func TestReadsAreLatest(t *testing.T) {
	dir := t.TempDir()
	var acknowledged atomic.Int64
	for range 3 {
		b, err := Embedded(t.Context(), dir, clock.RealClock{}, DefaultRetention)
		if err != nil {
			t.Fatal(err)
		}
		read := func() int64 {
			found, err := b.Client().Get(t.Context(), "/a")
			if err != nil {
				t.Error(err)
				return math.MaxInt64
			}
			if len(found.Kvs) == 0 {
				return 0
			}
			value, err := strconv.ParseInt(string(found.Kvs[0].Value), 10, 64)
			if err != nil {
				t.Error(err)
			}
			return value
		}
		if got, want := read(), acknowledged.Load(); got != want {
			t.Errorf("read %d after the start, and %d was written", got, want)
		}
		var clients sync.WaitGroup
		written := make(chan struct{})
		clients.Go(func() {
			defer close(written)
			for range 300 {
				next := acknowledged.Load() + 1
				if _, err := b.Client().Put(t.Context(), "/a", strconv.FormatInt(next, 10)); err != nil {
					t.Error(err)
					return
				}
				acknowledged.Store(next)
			}
		})
		for range 4 {
			clients.Go(func() {
				for {
					select {
					case <-written:
						return
					default:
					}
					if before := acknowledged.Load(); read() < before {
						t.Errorf("a read does not find %d, which was written before", before)
					}
				}
			})
		}
		clients.Wait()
		b.Close()
	}
}

// TestReadsFollowEvents: a read that follows an event finds what the event told. etcd sends events before readers see the write, and the more watches get
// an event the longer before.
func TestReadsFollowEvents(t *testing.T) {
	b := open(t, t.TempDir())
	defer b.Close()
	client := b.Client()
	const key, streams, watches, writes = "/a", 50, 100, 30
	var readers sync.WaitGroup
	for i := range streams * watches {
		// Watches with the same metadata share a stream.
		ctx := metadata.AppendToOutgoingContext(t.Context(), "stream", strconv.Itoa(i%streams))
		events := client.Watch(ctx, key, clientv3.WithCreatedNotify())
		if created := <-events; !created.Created {
			t.Fatal("the watch was not created:", created.Err())
		}
		readers.Go(func() {
			for last := ""; last != strconv.Itoa(writes); {
				response, ok := <-events
				if !ok || response.Err() != nil {
					t.Error("the watch ended early:", response.Err())
					return
				}
				for _, event := range response.Events {
					last = string(event.Kv.Value)
				}
				found, err := client.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				if found.Header.Revision < response.Header.Revision {
					t.Errorf("an event had revision %d, and a read after it %d", response.Header.Revision, found.Header.Revision)
				}
				if _, err := client.Get(t.Context(), key, clientv3.WithRev(response.Header.Revision)); err != nil {
					t.Errorf("a read at the revision of an event: %v", err)
				}
			}
		})
	}
	for i := range writes {
		if _, err := client.Put(t.Context(), key, strconv.Itoa(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
}
