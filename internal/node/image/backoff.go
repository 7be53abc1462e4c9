// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// The pause after a failed pull: 10 s, doubling up to 5 minutes.
const (
	minBackoff = 10 * time.Second
	maxBackoff = 300 * time.Second
)

// backoff records failed pulls, by pod and image.
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

// waiting returns the message of the last failure, and whether the pause after it is still going on.
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

// forgetOld drops failures without a recent retry. Most of their pods are gone.
func (b *backoff) forgetOld() {
	for key, f := range b.failures {
		if b.clock.Since(f.at) > 2*maxBackoff {
			delete(b.failures, key)
		}
	}
}
