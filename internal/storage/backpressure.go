// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

const (
	// maxInFlight is how many events may be on their way from the store through the watch
	// cache. It is the length of the queue that the cache gives to a watch of a quiet resource.
	maxInFlight = 10
	// maxDelay is the maximum delay of an event. It only matters if a watch is stuck:
	// the cache then ends it, as it would without the delay. Where many goroutines wait for a
	// processor, a watch may need a tenth of a second for its turn.
	maxDelay = 2 * time.Second
)

// backpressure keeps the watch cache of one resource from running ahead of its watches.
//
// The cache gives each watch a queue of ten events, and ends a watch whose queue stays full.
// Its time budget for waiting is a tenth of a second, refilled at a twentieth a second, which
// suits a server with idle processors. Where two processors also run controllers, scheduler and
// nodes, a hundred creates in a row ended every watch of pods, users' ones included: no reader
// was slow, but the cache ran before its watches did. With backpressure, events reach the cache
// as fast as the watches take them, and wait in the etcd client.
//
// Watches of one object, or of objects found by an index, are not waited for: there are many,
// and each gets few events.
type backpressure struct {
	clock clock.Clock

	mu sync.Mutex
	// inFlight are the latest events that were admitted, oldest first.
	inFlight []storeEvent
	watches  map[*bufferedWatch]*progress
	// changed is closed when a watch takes an event or leaves.
	changed chan struct{}
}

// storeEvent is an event on its way to the cache.
type storeEvent struct {
	version uint64
	object  runtime.Object
}

// progress is how far a watch has come.
type progress struct {
	// selects reports whether the watch gets an event with this object. It may also get
	// events of objects that it selected before they changed.
	selects func(runtime.Object) bool
	// taken is the latest resource version that the watch has taken.
	taken uint64
}

func newBackpressure(c clock.Clock) *backpressure {
	return &backpressure{clock: c, watches: map[*bufferedWatch]*progress{}, changed: make(chan struct{})}
}

// join makes events wait for a watch. Events that were admitted before do not count, because
// the watch begins with what the cache holds now.
func (p *backpressure) join(w *bufferedWatch, selects func(runtime.Object) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := &progress{selects: selects}
	if n := len(p.inFlight); n > 0 {
		now.taken = p.inFlight[n-1].version
	}
	p.watches[w] = now
}

func (p *backpressure) leave(w *bufferedWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, w)
	p.signal()
}

// took notes that a watch has taken an event. The objects that a watch begins with come in any
// order of versions.
func (p *backpressure) took(w *bufferedWatch, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.watches[w]; now != nil && version > now.taken {
		now.taken = version
		p.signal()
	}
}

func (p *backpressure) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// await returns when an event may go to the cache: when it is admitted, after maxDelay, or
// when ctx is done.
func (p *backpressure) await(ctx context.Context, event storeEvent) {
	var timeout <-chan time.Time
	for {
		changed, ok := p.admit(event, false)
		if ok {
			return
		}
		if timeout == nil {
			timer := p.clock.NewTimer(maxDelay)
			defer timer.Stop()
			timeout = timer.C()
		}
		select {
		case <-changed:
		case <-timeout:
			p.admit(event, true)
			return
		case <-ctx.Done():
			return
		}
	}
}

// admit admits an event if all watches have taken the one that was admitted maxInFlight events
// earlier, or if force is set. Otherwise it returns a channel that is closed when that may have
// changed.
func (p *backpressure) admit(event storeEvent, force bool) (changed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.inFlight); n == maxInFlight {
		if !force && !p.allTook(p.inFlight[0]) {
			return p.changed, false
		}
		p.inFlight = slices.Delete(p.inFlight, 0, 1)
	}
	p.inFlight = append(p.inFlight, event)
	return nil, true
}

// allTook reports whether all watches that get an event have taken it.
func (p *backpressure) allTook(event storeEvent) bool {
	for _, w := range p.watches {
		if w.taken < event.version && w.selects(event.object) {
			return false
		}
	}
	return true
}

// eventThrottle is the store below a watch cache: its events wait until the cache's watches
// have taken earlier ones. Their objects share what versions have in common.
type eventThrottle struct {
	storage.Interface
	pressure *backpressure
}

func (t eventThrottle) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := t.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &throttledWatch{source: source, events: make(chan watch.Event), cancel: cancel}
	go w.run(ctx, t.pressure, t.Versioner())
	return w, nil
}

// throttledWatch reads its next event only after the last one was passed on.
type throttledWatch struct {
	source watch.Interface
	events chan watch.Event
	cancel context.CancelFunc
}

func (w *throttledWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *throttledWatch) Stop() {
	w.cancel()
	w.source.Stop()
}

func (w *throttledWatch) run(ctx context.Context, pressure *backpressure, versions storage.Versioner) {
	defer close(w.events)
	var shared sharedVersions
	for e := range w.source.ResultChan() {
		shared.add(e)
		if version := versionOf(versions, e); version > 0 {
			pressure.await(ctx, storeEvent{version, unwrapped(e.Object)})
		}
		select {
		case w.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// unwrapped returns the object of an event for a watch cache, which etcd3 wraps together with a time. Selectors know the object only.
func unwrapped(object runtime.Object) runtime.Object {
	if timed, ok := object.(storage.WatchEventWithRecordTime); ok {
		return timed.Unwrap()
	}
	return object
}

// versionOf returns the resource version of an event about an object; 0 for bookmarks and
// errors.
func versionOf(versions storage.Versioner, e watch.Event) uint64 {
	if e.Type == watch.Bookmark || e.Type == watch.Error {
		return 0
	}
	version, err := versions.ObjectResourceVersion(e.Object)
	if err != nil {
		return 0
	}
	return version
}
