// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"math"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// bufferLimit is the number of events that are buffered for a client's watch. A watch with a full buffer blocks the watch cache,
// which then ends it. An event costs a few words: all watches share its object.
const bufferLimit = 10_000

type ownKey struct{}

// Own returns the context of a request of the server's own process. Its watches have no bufferLimit: they are behind only when
// the processors are busy, and would then list all objects again, which costs each handler of an informer an event for each object.
func Own(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

func limitOf(ctx context.Context) int {
	if own, _ := ctx.Value(ownKey{}).(bool); own {
		return math.MaxInt
	}
	return bufferLimit
}

// watchBuffer is a watch cache whose watches buffer events, so that a slow client does not block
// the watch cache.
type watchBuffer struct {
	storage.Interface
	pressure *backpressure
	// root is the key prefix of the whole resource.
	root string
}

func (b watchBuffer) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	w := &bufferedWatch{source: source, limit: limitOf(ctx), onEvent: func(watch.Event) {}, onLeave: func() {}}
	if selects := b.selection(ctx, key, opts.Predicate); selects != nil {
		versions := b.Versioner()
		b.pressure.join(w, selects)
		w.onEvent = func(e watch.Event) { b.pressure.took(w, versionOf(versions, e)) }
		w.onLeave = func() { b.pressure.leave(w) }
	}
	return w.start(), nil
}

// selection returns a function that reports whether a watch gets an object; nil if the watch
// exerts no backpressure.
func (b watchBuffer) selection(ctx context.Context, key string, predicate storage.SelectionPredicate) func(runtime.Object) bool {
	if _, single := predicate.MatchesSingle(); single || len(predicate.MatcherIndex(ctx)) > 0 {
		return nil
	}
	namespace := strings.Trim(strings.TrimPrefix(key, b.root), "/")
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

// bufferedWatch is a watch that takes events from its source as they arrive, and buffers them until
// its client reads them.
type bufferedWatch struct {
	source watch.Interface
	// limit is the maximum number of buffered events.
	limit int
	// onEvent is called for each event that is taken from the source. onLeave is called, perhaps more
	// than once, when the watch takes no more events or exerts no more backpressure.
	onEvent func(watch.Event)
	onLeave func()

	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

// start takes events in a goroutine until the source ends or Stop is called.
func (w *bufferedWatch) start() *bufferedWatch {
	w.events, w.stopped = make(chan watch.Event), make(chan struct{})
	go w.run()
	return w
}

func (w *bufferedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *bufferedWatch) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.onLeave()
		w.source.Stop()
	})
}

// run passes on all events in order, and ends after the last one when the source has ended.
func (w *bufferedWatch) run() {
	defer close(w.events)
	defer w.onLeave()
	var buffer []watch.Event
	source := w.source.ResultChan()
	for source != nil || len(buffer) > 0 {
		var (
			in   = source
			out  chan watch.Event
			next watch.Event
		)
		if len(buffer) >= w.limit {
			in = nil
			w.onLeave()
		}
		if len(buffer) > 0 {
			out, next = w.events, buffer[0]
		}
		select {
		case event, ok := <-in:
			if !ok {
				source = nil
				w.onLeave()
				continue
			}
			w.onEvent(event)
			buffer = append(buffer, event)
		case out <- next:
			buffer[0] = watch.Event{}
			if buffer = buffer[1:]; len(buffer) == 0 {
				buffer = nil
			}
		case <-w.stopped:
			return
		}
	}
}
