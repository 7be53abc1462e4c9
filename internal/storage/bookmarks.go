// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// bookmarkFilter sends bookmarks only to watches that requested them, by ListOptions.ProgressNotify
// or by the API's allowWatchBookmarks. All watches share one stream to etcd: when a watch cache
// requests a progress notification, every watch on the stream receives it.
type bookmarkFilter struct{ storage.Interface }

func (f bookmarkFilter) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := f.Interface.Watch(ctx, key, opts)
	if err != nil || opts.ProgressNotify || opts.Predicate.AllowWatchBookmarks {
		return source, err
	}
	w := &filteredWatch{source: source, events: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run()
	return w, nil
}

// filteredWatch is a watch without bookmarks. apimachinery's watch.Filter would block for
// good on an event whose reader has stopped.
type filteredWatch struct {
	source  watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *filteredWatch) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.source.Stop()
	})
}

func (w *filteredWatch) run() {
	defer close(w.events)
	for e := range w.source.ResultChan() {
		if e.Type == watch.Bookmark {
			continue
		}
		select {
		case w.events <- e:
		case <-w.stopped:
			return
		}
	}
}
