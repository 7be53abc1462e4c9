// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// A watch gets events after many others, on the same stream, were cancelled at once while events arrived.
func TestManyWatchesAreCancelled(t *testing.T) {
	b := open(t, t.TempDir())
	defer b.Close()
	client := b.Client()
	put := func(ctx context.Context, value string) {
		if _, err := client.Put(ctx, "/registry/x", value); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	for round := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		for range 300 {
			events := client.Watch(ctx, "/registry/", clientv3.WithPrefix())
			go func() {
				for e := range events {
					_ = e
				}
			}()
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			for i := range 50 {
				put(t.Context(), fmt.Sprint(i))
			}
		}()
		cancel()
		<-written

		limit, end := context.WithTimeout(t.Context(), 10*time.Second)
		events := client.Watch(limit, "/registry/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		if created := <-events; !created.Created {
			t.Fatalf("round %d: the watch was not created: %v", round, created.Err())
		}
		put(limit, "last")
		if event := <-events; len(event.Events) == 0 {
			t.Fatalf("round %d: no event: %v", round, event.Err())
		}
		end()
	}
}

// A store is closed while watches read the previous states of what is written.
func TestCloseWhileWatching(t *testing.T) {
	for range 10 {
		b := open(t, t.TempDir())
		client := b.Client()
		for i := range 100 {
			// A context of their own gives watches a stream of their own.
			ctx := metadata.NewOutgoingContext(context.Background(), metadata.Pairs("stream", fmt.Sprint(i)))
			events := client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
			<-events
			go func() {
				for e := range events {
					_ = e
				}
			}()
		}
		var writers sync.WaitGroup
		for i := range 20 {
			writers.Go(func() {
				for {
					if _, err := client.Put(context.Background(), fmt.Sprintf("/registry/x/%d", i), "value"); err != nil {
						return // the store is closed
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		b.Close()
		writers.Wait()
	}
}
