// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Retention bounds the history that the store keeps: past states of objects, deleted ones
// included.
type Retention struct {
	// Age is the time that a state can be read after it was replaced or deleted.
	Age time.Duration
	// Size is how many bytes of the database may be in use before history younger than Age is
	// removed too. Current objects count, and are never removed.
	Size int64
	// Deletions is the time that records of deletions are kept.
	Deletions time.Duration
}

// DefaultRetention keeps states for an hour, up to one GiB, and records of deletions for a day.
var DefaultRetention = Retention{Age: time.Hour, Size: 1 << 30, Deletions: 24 * time.Hour}

const (
	// watchable is the minimum time for which a revision can be listed and watched, even if the
	// database is too large: the lifetime of a continue token (upstream's
	// --etcd-compaction-interval).
	watchable = 5 * time.Minute
	// minDeletions is the minimum of Deletions: records expire with etcd leases, and shorter leases
	// are not reliable.
	minDeletions = time.Minute
	// maxSize is the maximum of Size: below its quota, the embedded etcd needs room for writes until
	// history is removed.
	maxSize = quota / 4 * 3
	// pinnedRoom is the part of that room that pinned history may use: half of it.
	pinnedRoom = quota / 8
)

// Check validates the retention. Only an embedded store has a known quota.
func (r Retention) Check(embedded bool) error {
	switch {
	case r.Age < watchable:
		return fmt.Errorf("--history-retention is %s, and must be at least %s, because continue tokens of lists are valid that long", r.Age, watchable)
	case r.Size <= 0:
		return fmt.Errorf("--history-size is %s, and must be greater than 0", quantity(r.Size))
	case r.Deletions < minDeletions:
		return fmt.Errorf("--deletion-records is %s, and must be at least %s", r.Deletions, minDeletions)
	case embedded && r.Size > maxSize:
		return fmt.Errorf("--history-size is %s, and may be at most %s: at %s the embedded etcd refuses writes", quantity(r.Size), quantity(maxSize), quantity(quota))
	}
	return nil
}

// extent describes the history in the store at a time.
type extent struct {
	now   time.Time
	marks *marks
	// oldest is the oldest revision that may still be readable, and pinned the oldest pinned
	// revision; 0 for none.
	oldest, pinned int64
	// size is how many bytes of the database are in use.
	size int64
}

// target returns the revision to compact to; 0 for none. History older than Age is removed. If the
// database is larger than Size, half of the younger history is removed too, except that of the time
// watchable. A pinned revision is kept while the database is not larger than pinnedSize.
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

// pinnedSize returns the size of the database above which even pinned history is removed: a reader
// must not block writes.
func (r Retention) pinnedSize() int64 { return r.Size + min(r.Size/2, pinnedRoom) }

// quantity formats a size as the flags do, for example 1Gi.
func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
