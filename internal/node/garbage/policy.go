// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"cmp"
	"slices"
	"time"
)

// Image is an image of the runtime.
type Image struct {
	ID string
	// Names are the ID, the tags and the digests.
	Names []string
	Size  uint64
	// Pinned images are never removed.
	Pinned bool
	// InUse reports whether a container, a sandbox, or a pod of the node needs the image.
	InUse bool
	// FirstSeen and LastUsed are when the agent first saw the image, and last saw it in use; LastUsed is zero if it
	// never was.
	FirstSeen, LastUsed time.Time
}

// idleSince returns when the image became unused.
func (i Image) idleSince() time.Time {
	if i.LastUsed.After(i.FirstSeen) {
		return i.LastUsed
	}
	return i.FirstSeen
}

// Policy decides which images are removed.
type Policy struct {
	// High is the usage of the file system, in percent, from which images are removed, and Low the usage that they are
	// removed down to.
	High, Low int
	// MinAge is the time that an image stays after it was first seen.
	MinAge time.Duration
	// MaxAge is the time that an unused image stays; 0 means that its age does not matter.
	MaxAge time.Duration
}

// disabled reports whether the policy never removes an image.
func (p Policy) disabled() bool { return p.High == 100 && p.MaxAge == 0 }

// removable returns the images that may be removed, in the order in which to remove them: the least recently used
// image first and, of those that were never used, the oldest.
func (p Policy) removable(images []Image, now time.Time) []Image {
	var list []Image
	for _, image := range images {
		if !image.Pinned && !image.InUse && now.Sub(image.FirstSeen) >= p.MinAge {
			list = append(list, image)
		}
	}
	slices.SortFunc(list, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// split divides removable images into those that have been unused for longer than MaxAge, and the others.
func (p Policy) split(removable []Image, now time.Time) (expired, others []Image) {
	for _, image := range removable {
		if p.MaxAge > 0 && now.Sub(image.idleSince()) > p.MaxAge {
			expired = append(expired, image)
		} else {
			others = append(others, image)
		}
	}
	return expired, others
}

// space is the size of a file system, in bytes.
type space struct{ capacity, available uint64 }

// used returns the usage in percent, rounded up.
func (s space) used() int { return 100 - int(min(s.available, s.capacity)*100/s.capacity) }

// excess returns how many bytes must be freed: 0 while the usage is below High.
func (p Policy) excess(s space) uint64 {
	if s.used() < p.High {
		return 0
	}
	target := s.capacity * uint64(100-p.Low) / 100
	return max(target, s.available) - s.available
}
