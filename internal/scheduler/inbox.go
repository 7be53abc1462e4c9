// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "sync"

// change is something the machine has to be told.
type change func(*machine)

// inbox carries changes from those who see them to the loop. It has no limit: an
// informer must not be held up, and what it has to say is in its cache anyway.
type inbox struct {
	news chan struct{}

	mu      sync.Mutex
	changes []change
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

func (b *inbox) post(c change) {
	b.mu.Lock()
	b.changes = append(b.changes, c)
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// take empties the inbox, in the order in which it was filled.
func (b *inbox) take() []change {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes := b.changes
	b.changes = nil
	return changes
}
