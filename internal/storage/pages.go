// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageSize is how many keys are read at first, and again where they are large.
	pageSize = 500
	// pageBytes is about how much is read at a time where they are small, and largestPage how
	// many keys.
	pageBytes   = 4 << 20
	largestPage = 5000
)

// pages goes through the keys of a range. It ends with an error, if there is one.
func pages(ctx context.Context, client clientv3.KV, start, end string, options ...clientv3.OpOption) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for limit, more := pageSize, true; more; {
			page, err := client.Get(ctx, start, append(options[:len(options):len(options)], clientv3.WithRange(end), clientv3.WithLimit(int64(limit)))...)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(kv, nil) {
					return
				}
				start = string(kv.Key) + "\x00"
			}
			limit, more = limitAfter(page.Kvs), page.More && len(page.Kvs) > 0
		}
	}
}

// limitAfter is how many keys are read after a page. With each, etcd goes through all keys up to
// the end of the range, to count them: a hundred thousand small ones cost three times as much
// time for that as for everything else, if five hundred are read at a time.
func limitAfter(page []*mvccpb.KeyValue) int {
	size := 1
	for _, kv := range page {
		size += len(kv.Key) + len(kv.Value)
	}
	return max(pageSize, min(len(page)*pageBytes/size, largestPage))
}
