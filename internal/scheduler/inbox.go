// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "sync"

// change is a change to apply to the machine.
type change func(*machine)

// inbox is a queue of changes from other goroutines to the loop. It is unbounded, because an
// informer must not be blocked and its objects are in its cache anyway.
type inbox struct {
	notify chan struct{}

	mu      sync.Mutex
	changes []change
}

func newInbox() *inbox { return &inbox{notify: make(chan struct{}, 1)} }

func (b *inbox) post(c change) {
	b.mu.Lock()
	b.changes = append(b.changes, c)
	b.mu.Unlock()
	select {
	case b.notify <- struct{}{}:
	default:
	}
}

// take removes and returns all changes, in order.
func (b *inbox) take() []change {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes := b.changes
	b.changes = nil
	return changes
}
