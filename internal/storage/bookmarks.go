// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"

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
	q := &quiet{source: source, events: make(chan watch.Event), stopped: make(chan struct{})}
	go q.run()
	return q, nil
}

// quiet is a watch without bookmarks. The library's watch.Filter would wait for ever
// with an event in hand for a reader who has gone.
type quiet struct {
	source  watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func (q *quiet) ResultChan() <-chan watch.Event { return q.events }

func (q *quiet) Stop() {
	q.stop.Do(func() {
		close(q.stopped)
		q.source.Stop()
	})
}

func (q *quiet) run() {
	defer close(q.events)
	for e := range q.source.ResultChan() {
		if e.Type == watch.Bookmark {
			continue
		}
		select {
		case q.events <- e:
		case <-q.stopped:
			return
		}
	}
}
