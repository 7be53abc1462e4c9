// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"slices"
	"sync"
)

// locks has a lock for each claim that is being changed.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is released
}

// lock locks several keys, in an order that is the same for all callers.
func (l *locks) lock(ctx context.Context, keys []string) (unlock func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	var locked []string
	unlock = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range locked {
			close(l.held[key])
			delete(l.held, key)
		}
	}
	for _, key := range keys {
		if err := l.lockOne(ctx, key); err != nil {
			unlock()
			return nil, err
		}
		locked = append(locked, key)
	}
	return unlock, nil
}

func (l *locks) lockOne(ctx context.Context, key string) error {
	for {
		l.mu.Lock()
		released, held := l.held[key]
		if !held {
			l.held[key] = make(chan struct{})
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
