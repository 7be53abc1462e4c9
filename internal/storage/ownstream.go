// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// ownStream gives the watch cache of a resource a stream of its own to etcd: the etcd client opens one for each different
// metadata of a request.
//
// A cache whose readers wait for the latest state requests a progress notification ten times a second, and etcd sends it to all
// watches of the stream. If the caches of a server with many custom resources share a stream, each request wakes all of them, and
// the events of all pass through one goroutine; with busy processors, they came seconds late. Upstream's API server has a client
// for each resource. Watches that bypass the cache share a stream, on which nothing requests a notification.
type ownStream struct {
	storage.Interface
	// name is the same for the caches of all versions of a resource.
	name string
}

func (s ownStream) named(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "cache", s.name)
}

func (s ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(s.named(ctx), key, opts)
}

func (s ownStream) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(s.named(ctx))
}
