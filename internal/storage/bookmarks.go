// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// bookmarks sends bookmarks to those watches alone that asked for them, as
// ListOptions.ProgressNotify promises and the API's allowWatchBookmarks does. All watches
// share one stream to etcd, and when a watch cache asks there how far it has come,
// every watch on the stream hears the answer.
type bookmarks struct{ storage.Interface }

func (b bookmarks) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := b.Interface.Watch(ctx, key, opts)
	if err != nil || opts.ProgressNotify || opts.Predicate.AllowWatchBookmarks {
		return source, err
	}
	return watch.Filter(source, func(e watch.Event) (watch.Event, bool) { return e, e.Type != watch.Bookmark }), nil
}
