// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Retention bounds how much of its past the store keeps: old states of objects, and those of
// objects that are gone.
type Retention struct {
	// Age is how long a state can be read after it was replaced.
	Age time.Duration
	// Size is how many bytes of the database may be in use before history younger than
	// Age goes too. What is there now counts, and never goes.
	Size int64
	// Deletions is how long it is remembered who deleted what.
	Deletions time.Duration
}

// DefaultRetention remembers states for an hour, within a gibibyte, and deletions for a day.
var DefaultRetention = Retention{Age: time.Hour, Size: 1 << 30, Deletions: 24 * time.Hour}

const (
	// watchable is how long a revision can be listed and watched from at least, whatever
	// the size: continue tokens are valid that long (upstream's
	// --etcd-compaction-interval).
	watchable = 5 * time.Minute
	// leastDeletions is what a lease of etcd's can be relied on for.
	leastDeletions = time.Minute
	// largestSize leaves the embedded etcd room to go on writing until old history is
	// gone, below its quota.
	largestSize = quota / 4 * 3
	// pinnedRoom leaves, beyond largestSize, half of that room.
	pinnedRoom = quota / 8
)

// Check says what is wrong. An embedded store has a quota that is known.
func (r Retention) Check(embedded bool) error {
	switch {
	case r.Age < watchable:
		return fmt.Errorf("--history-retention is %s, and must be at least %s: that is how long the pages of a list may be asked for", r.Age, watchable)
	case r.Size <= 0:
		return fmt.Errorf("--history-size is %s, and must be greater than 0", quantity(r.Size))
	case r.Deletions < leastDeletions:
		return fmt.Errorf("--deletion-records is %s, and must be at least %s", r.Deletions, leastDeletions)
	case embedded && r.Size > largestSize:
		return fmt.Errorf("--history-size is %s, and may be at most %s: at %s the embedded etcd refuses writes", quantity(r.Size), quantity(largestSize), quantity(quota))
	}
	return nil
}

// extent is how much of the past there is, as one looks at it.
type extent struct {
	now   time.Time
	marks *marks
	// oldest is the oldest revision that may still be readable, and pinned the oldest that
	// somebody reads; 0 for none.
	oldest, pinned int64
	// size is how many bytes of the database are in use.
	size int64
}

// target is the revision to compact to; 0 for none. What is older than Age goes and, of a
// database that is too large, half of the rest.
func (r Retention) target(e extent) int64 {
	target := e.marks.latest(e.now.Add(-r.Age)).revision
	if e.size > r.Size {
		if rest := e.marks.after(max(target, e.oldest), e.now.Add(-watchable)); len(rest) > 0 {
			target = rest[len(rest)/2].revision
		}
	}
	if e.pinned > 0 && e.size <= r.pinnedSize() {
		return min(target, e.pinned)
	}
	return target
}

// pinnedSize is how large the database may be before history goes that is pinned: who reads
// must not keep others from writing.
func (r Retention) pinnedSize() int64 { return r.Size + min(r.Size/2, pinnedRoom) }

func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
