// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// readAheadLimit is how many events a watch may be behind before it holds up
// the watch cache, which then ends it. An event costs a few words: the object
// is shared by all watches.
const readAheadLimit = 10_000

// readAhead lets watches fall behind in a burst. The watch cache queues ten
// events for a watcher and waits a tenth of a second at most; on a machine whose
// few processors also run controllers, scheduler and nodes, a hundred creates
// in a row were enough to end every watch of pods, those of users too.
type readAhead struct{ storage.Interface }

func (r readAhead) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := r.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return newReader(source), nil
}

// reader is a watch that takes events from its source as they come.
type reader struct {
	source  watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func newReader(source watch.Interface) *reader {
	r := &reader{source: source, events: make(chan watch.Event), stopped: make(chan struct{})}
	go r.run()
	return r
}

func (r *reader) ResultChan() <-chan watch.Event { return r.events }

func (r *reader) Stop() {
	r.stop.Do(func() { close(r.stopped) })
	r.source.Stop()
}

// run hands on all events in order, and ends after the last one when the source
// has ended.
func (r *reader) run() {
	defer close(r.events)
	var behind []watch.Event
	in := r.source.ResultChan()
	for in != nil || len(behind) > 0 {
		var (
			take = in
			give chan watch.Event
			next watch.Event
		)
		if len(behind) >= readAheadLimit {
			take = nil
		}
		if len(behind) > 0 {
			give, next = r.events, behind[0]
		}
		select {
		case event, ok := <-take:
			if !ok {
				in = nil
				continue
			}
			behind = append(behind, event)
		case give <- next:
			behind[0] = watch.Event{}
			if behind = behind[1:]; len(behind) == 0 {
				behind = nil
			}
		case <-r.stopped:
			return
		}
	}
}
