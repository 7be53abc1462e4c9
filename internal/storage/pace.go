// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"slices"
	"sync"
	"time"

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
// Only watches of the whole resource are waited for, because only they get every
// event: controllers, scheduler and collector have some on nearly every resource.
type pace struct {
	clock clock.Clock

	mu sync.Mutex
	// passed are the resource versions of the latest events, oldest first.
	passed []uint64
	// seen is the latest resource version that each watch has taken.
	seen map[*reader]uint64
	// moved is closed when a watch takes an event or goes.
	moved chan struct{}
}

func newPace(c clock.Clock) *pace {
	return &pace{clock: c, seen: map[*reader]uint64{}, moved: make(chan struct{})}
}

// join has events wait for the reader. What was passed before is none of its
// business: it begins with what the cache holds now.
func (p *pace) join(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[r] = 0
	if n := len(p.passed); n > 0 {
		p.seen[r] = p.passed[n-1]
	}
}

func (p *pace) leave(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, r)
	p.wake()
}

// saw notes what a reader has taken. The state that a watch may begin with
// comes in any order.
func (p *pace) saw(r *reader, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, joined := p.seen[r]; joined && version > last {
		p.seen[r] = version
		p.wake()
	}
}

func (p *pace) wake() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// pass waits until the event may be passed on.
func (p *pace) pass(ctx context.Context, version uint64) {
	var limit <-chan time.Time
	for {
		moved, ok := p.admit(version, false)
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
			p.admit(version, true)
			return
		case <-ctx.Done():
			return
		}
	}
}

// admit notes the event as passed if all watches have taken the one that was
// passed a window earlier, or if it has waited long enough.
func (p *pace) admit(version uint64, anyway bool) (moved <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.passed); n == paceWindow {
		if !anyway && !p.allSaw(p.passed[0]) {
			return p.moved, false
		}
		p.passed = slices.Delete(p.passed, 0, 1)
	}
	p.passed = append(p.passed, version)
	return nil, true
}

func (p *pace) allSaw(version uint64) bool {
	for _, seen := range p.seen {
		if seen < version {
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
			pace.pass(ctx, version)
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
