// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageSize is the number of keys in the first page, and the minimum for later pages.
	pageSize = 500
	// pageBytes is the size that later pages should have, and largestPage their maximum number of
	// keys.
	pageBytes   = 4 << 20
	largestPage = 5000
)

// pages yields the keys of a range, read page by page. An error is yielded last.
func pages(ctx context.Context, client clientv3.KV, start, end string, options ...clientv3.OpOption) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for limit, more := pageSize, true; more; {
			page, err := client.Get(ctx, start, append(slices.Clip(options), clientv3.WithRange(end), clientv3.WithLimit(int64(limit)))...)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(kv, nil) {
					return
				}
				start = string(kv.Key) + "\x00" // the next possible key
			}
			limit, more = limitAfter(page.Kvs), page.More && len(page.Kvs) > 0
		}
	}
}

// limitAfter returns how many keys the page after a given page should have: as many as fit in
// pageBytes if they are as large. Fewer pages are faster, because etcd counts all keys up to the end
// of the range for each page: with 500 keys a page, counting 100,000 small values takes three times
// as long as reading them.
func limitAfter(page []*mvccpb.KeyValue) int {
	size := 1
	for _, kv := range page {
		size += len(kv.Key) + len(kv.Value)
	}
	return max(pageSize, min(len(page)*pageBytes/size, largestPage))
}
