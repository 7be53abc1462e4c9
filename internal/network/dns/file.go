// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// fileCheck is the interval between two comparisons of a file with the one that was read, as in CoreDNS' plugin hosts.
const fileCheck = 5 * time.Second

// file is the content of a file, which is read again when the file has changed.
type file[T any] struct {
	path  string
	parse func([]byte) T
	clock clock.PassiveClock

	mu      sync.Mutex
	checked time.Time
	// modified and size identify what was read.
	modified time.Time
	size     int64
	content  T
}

func newFile[T any](path string, c clock.PassiveClock, parse func([]byte) T) *file[T] {
	return &file[T]{path: path, clock: c, parse: parse}
}

// get returns the content. A file that does not exist, or cannot be read, is an empty one.
func (f *file[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if !f.checked.IsZero() && now.Sub(f.checked) < fileCheck {
		return f.content
	}
	f.checked = now
	info, err := os.Stat(f.path)
	if err != nil {
		f.modified, f.size = time.Time{}, 0
		f.content = f.parse(nil)
		return f.content
	}
	if info.ModTime().Equal(f.modified) && info.Size() == f.size {
		return f.content
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		text = nil
	}
	f.modified, f.size, f.content = info.ModTime(), info.Size(), f.parse(text)
	return f.content
}
