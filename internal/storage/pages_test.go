// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// countingKV counts the keys that etcd visits: for each page, all that remain.
type countingKV struct {
	clientv3.KV
	visited int64
}

func (c *countingKV) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	answer, err := c.KV.Get(ctx, key, options...)
	if err == nil {
		c.visited += answer.Count
	}
	return answer, err
}

// TestPagesOfVeryMany: etcd's cost for each key does not grow with the number of keys, and no key
// is missing or read twice.
func TestPagesOfVeryMany(t *testing.T) {
	client := quietStore(t)
	const keys = 20_000
	var puts []clientv3.Op
	for i := range keys {
		if puts = append(puts, clientv3.OpPut(fmt.Sprintf("/many/%05d", i), "content")); len(puts) == 100 {
			if _, err := client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
				t.Fatal(err)
			}
			puts = nil
		}
	}
	write(t, client, "/manz", "not among them")
	counting, n := &countingKV{KV: client}, 0
	for kv, err := range pages(t.Context(), counting, "/many/", clientv3.GetPrefixRangeEnd("/many/")) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("/many/%05d", n); string(kv.Key) != want {
			t.Fatalf("%s, not %s", kv.Key, want)
		}
		n++
	}
	if n != keys || counting.visited > 4*keys {
		t.Errorf("%d keys were read, %d gone through", n, counting.visited)
	}
}

// TestLimitAfter: pages of small values have many keys, those of large values few.
func TestLimitAfter(t *testing.T) {
	page := func(n, bytes int) []*mvccpb.KeyValue {
		kvs := make([]*mvccpb.KeyValue, n)
		for i := range kvs {
			kvs[i] = &mvccpb.KeyValue{Value: []byte(strings.Repeat("a", bytes))}
		}
		return kvs
	}
	for name, tt := range map[string]struct {
		page []*mvccpb.KeyValue
		want int
	}{
		"none":     {nil, pageSize},
		"small":    {page(pageSize, 10), largestPage},
		"ordinary": {page(pageSize, 2048), 2047},
		"large":    {page(pageSize, 100_000), pageSize},
	} {
		if got := limitAfter(tt.page); got != tt.want {
			t.Errorf("%s: %d, not %d", name, got, tt.want)
		}
	}
}
