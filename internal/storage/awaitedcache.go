// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// maxFill is the maximum time that requests wait for a watch cache.
const maxFill = 10 * time.Second

// awaitedCache is a watch cache that the server's own lists wait for until it is filled, and all lists and watches if they have opened it.
//
// A list meets an empty cache if the resource has just been opened, as it is for custom resources
// after each change of their definition. Clients then get error 429 and try again (KEP-4568). The
// finalizer of k8s.io/apiextensions-apiserver, which lists the objects of a deleted definition,
// tries again as well, but gives up if it sees the definition as it was before its own last update.
// The definition then stays until the next resync, for up to five minutes.
type awaitedCache struct {
	storage.Interface
	cache *cacher.Cacher
	// everyone is set if clients wait too.
	everyone bool
}

// GetList implements storage.Interface.
func (a awaitedCache) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if _, isRequest := request.RequestInfoFrom(ctx); a.everyone || !isRequest {
		a.await(ctx)
	}
	return a.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (a awaitedCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if a.everyone {
		a.await(ctx)
	}
	return a.Interface.Watch(ctx, key, opts)
}

// await returns when the cache is filled or stopped, or after maxFill. If the cache is not filled then, the request that
// follows returns the error.
func (a awaitedCache) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxFill)
	defer cancel()
	_ = a.cache.Wait(ctx)
}
