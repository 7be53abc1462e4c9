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
	// paceWindow is how many events may be on their way from the store through the
	// watch cache. It is the length of the queue that the cache gives to a watch of
	// a quiet resource.
	paceWindow = 10
	// paceLimit is how long an event is held back at most. It only matters if a
	// watch is stuck; the cache then ends it, as it would have without the pace.
	paceLimit = 100 * time.Millisecond
)

// pace keeps the watch cache of one resource from running ahead of its watches.
// The cache gives each a queue of ten events, and ends those whose queue stays
// full; its allowance for waiting is a tenth of a second, and a twentieth more
// each second. That suits a server with processors to spare. Where two of them
// also run controllers, scheduler and nodes, a hundred creates in a row ended
// every watch of pods, users' ones too: not because anybody read too slowly, but
// because the cache came to run before its watches did. So the store's events
// are passed on as fast as the watches take them, and wait in etcd's client.
//
// Watches of one object, or of those that an index finds, are not waited for:
// they are many and get few events each.
type pace struct {
	clock clock.Clock

	mu sync.Mutex
	// passed are the latest events, oldest first.
	passed  []passed
	watches map[*reader]*watching
	// moved is closed when a watch takes an event or goes.
	moved chan struct{}
}

// passed is an event on its way.
type passed struct {
	version uint64
	object  runtime.Object
}

// watching is how far a watch has come.
type watching struct {
	// wants is whether the watch gets the event that left an object so. It may
	// also get others: of objects that it had got earlier, and that changed.
	wants func(runtime.Object) bool
	// seen is the latest resource version it has taken.
	seen uint64
}

func newPace(c clock.Clock) *pace {
	return &pace{clock: c, watches: map[*reader]*watching{}, moved: make(chan struct{})}
}

// join has events wait for the reader. What was passed before is none of its
// business: it begins with what the cache holds now.
func (p *pace) join(r *reader, wants func(runtime.Object) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &watching{wants: wants}
	if n := len(p.passed); n > 0 {
		w.seen = p.passed[n-1].version
	}
	p.watches[r] = w
}

func (p *pace) leave(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, r)
	p.wake()
}

// saw notes what a reader has taken. The state that a watch may begin with
// comes in any order.
func (p *pace) saw(r *reader, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.watches[r]; w != nil && version > w.seen {
		w.seen = version
		p.wake()
	}
}

func (p *pace) wake() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// pass waits until the event may be passed on.
func (p *pace) pass(ctx context.Context, event passed) {
	var limit <-chan time.Time
	for {
		moved, ok := p.admit(event, false)
		if ok {
			return
		}
		if limit == nil {
			timer := p.clock.NewTimer(paceLimit)
			defer timer.Stop()
			limit = timer.C()
		}
		select {
		case <-moved:
		case <-limit:
			p.admit(event, true)
			return
		case <-ctx.Done():
			return
		}
	}
}

// admit notes the event as passed if all watches have taken the one that was
// passed a window earlier, or if it has waited long enough.
func (p *pace) admit(event passed, anyway bool) (moved <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.passed); n == paceWindow {
		if !anyway && !p.allSaw(p.passed[0]) {
			return p.moved, false
		}
		p.passed = slices.Delete(p.passed, 0, 1)
	}
	p.passed = append(p.passed, event)
	return nil, true
}

func (p *pace) allSaw(event passed) bool {
	for _, w := range p.watches {
		if w.seen < event.version && w.wants(event.object) {
			return false
		}
	}
	return true
}

// paced is the store below a watch cache: its events keep the pace.
type paced struct {
	storage.Interface
	pace *pace
}

func (p paced) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	source, err := p.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &pacedWatch{source: source, events: make(chan watch.Event), cancel: cancel}
	go w.run(ctx, p.pace, p.Versioner())
	return w, nil
}

// pacedWatch takes an event only when the one before has been passed on.
type pacedWatch struct {
	source watch.Interface
	events chan watch.Event
	cancel context.CancelFunc
}

func (w *pacedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *pacedWatch) Stop() {
	w.cancel()
	w.source.Stop()
}

func (w *pacedWatch) run(ctx context.Context, pace *pace, versions storage.Versioner) {
	defer close(w.events)
	for e := range w.source.ResultChan() {
		if version := versionOf(versions, e); version > 0 {
			pace.pass(ctx, passed{version, e.Object})
		}
		select {
		case w.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// versionOf is the resource version of an event that changed an object; 0 for others.
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
