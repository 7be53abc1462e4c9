// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
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
