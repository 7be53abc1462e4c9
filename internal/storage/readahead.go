// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// readAheadLimit is how many events a watch may be behind before it holds up
// the watch cache, which then ends it. An event costs a few words: the object
// is shared by all watches.
const readAheadLimit = 10_000

// readAhead is a watch cache whose watches take events at once, however slow
// those are who read them, and so can set the pace.
type readAhead struct {
	storage.Interface
	pace *pace
	// root is the key of the whole resource.
	root string
}

func (a readAhead) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := a.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	r := &reader{source: source, taken: func(watch.Event) {}, left: func() {}}
	if wants := a.interest(ctx, key, opts.Predicate); wants != nil {
		versions := a.Versioner()
		a.pace.join(r, wants)
		r.taken = func(e watch.Event) { a.pace.saw(r, versionOf(versions, e)) }
		r.left = func() { a.pace.leave(r) }
	}
	return r.start(), nil
}

// interest tells which objects a watch is about; nil if it sets no pace.
func (a readAhead) interest(ctx context.Context, key string, predicate storage.SelectionPredicate) func(runtime.Object) bool {
	if _, single := predicate.MatchesSingle(); single || len(predicate.MatcherIndex(ctx)) > 0 {
		return nil
	}
	namespace := strings.Trim(strings.TrimPrefix(key, a.root), "/")
	return func(object runtime.Object) bool {
		if namespace != "" && namespaceOf(object) != namespace {
			return false
		}
		matches, err := predicate.Matches(object)
		return matches && err == nil
	}
}

func namespaceOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetNamespace()
}

// reader is a watch that takes events from its source as they come.
type reader struct {
	source watch.Interface
	// taken is told of each event, left that no more will be taken.
	taken func(watch.Event)
	left  func()

	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func (r *reader) start() *reader {
	r.events, r.stopped = make(chan watch.Event), make(chan struct{})
	go r.run()
	return r
}

func (r *reader) ResultChan() <-chan watch.Event { return r.events }

func (r *reader) Stop() {
	r.stop.Do(func() {
		close(r.stopped)
		r.left()
		r.source.Stop()
	})
}

// run hands on all events in order, and ends after the last one when the source
// has ended.
func (r *reader) run() {
	defer close(r.events)
	defer r.left()
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
			r.left()
		}
		if len(behind) > 0 {
			give, next = r.events, behind[0]
		}
		select {
		case event, ok := <-take:
			if !ok {
				in = nil
				r.left()
				continue
			}
			r.taken(event)
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
