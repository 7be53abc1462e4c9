// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A failed pull is not tried again for 10 s, then 20 s, and so on up to 5 min.
const (
	minBackoff = 10 * time.Second
	maxBackoff = 300 * time.Second
)

// backoff remembers failed pulls, each by pod and image.
type backoff struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	failures map[string]failure
}

type failure struct {
	at      time.Time
	delay   time.Duration
	message string
}

func newBackoff(c clock.PassiveClock) *backoff {
	return &backoff{clock: c, failures: map[string]failure{}}
}

// waiting says whether it is too early to try again, and what went wrong.
func (b *backoff) waiting(key string) (message string, waiting bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.failures[key]
	return f.message, ok && b.clock.Since(f.at) < f.delay
}

func (b *backoff) failed(key, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOld()
	delay := minBackoff
	if f, ok := b.failures[key]; ok {
		delay = min(2*f.delay, maxBackoff)
	}
	b.failures[key] = failure{at: b.clock.Now(), delay: delay, message: message}
}

func (b *backoff) succeeded(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, key)
}

// forgetOld drops what nobody has tried for long: pods that are gone, mostly.
func (b *backoff) forgetOld() {
	for key, f := range b.failures {
		if b.clock.Since(f.at) > 2*maxBackoff {
			delete(b.failures, key)
		}
	}
}
