// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/durable"
)

// usage remembers since when the node has each image, and when it was last in use. A file keeps it, so that a restart of
// the agent changes nothing. The file is not synced: if it is lost, all images count as new, and stay longer.
type usage struct {
	file  string
	clock clock.PassiveClock

	mu     sync.Mutex
	images map[string]times
}

// times are those of one image.
type times struct {
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
}

// usedGranularity is how much later than recorded an image may have been used. It saves most writes of the file.
const usedGranularity = time.Minute

// openUsage reads the file. One that is missing or damaged counts as empty.
func openUsage(file string, clock clock.PassiveClock) *usage {
	u := &usage{file: file, clock: clock, images: map[string]times{}}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &u.images) != nil || u.images == nil {
		u.images = map[string]times{}
	}
	return u
}

// observe records that the runtime has these images and no others, and fills in their times.
func (u *usage) observe(images []Image) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	next := make(map[string]times, len(images))
	for i := range images {
		image := &images[i]
		t, known := u.images[image.ID]
		if !known || t.FirstSeen.After(now) { // after now: the clock was set back
			t.FirstSeen = now
		}
		if image.InUse || t.LastUsed.After(now) {
			t.LastUsed = now
		}
		next[image.ID] = t
		image.FirstSeen, image.LastUsed = t.FirstSeen, t.LastUsed
	}
	u.images = next
	return u.save()
}

// used records that an image is in use now.
func (u *usage) used(id string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	t, known := u.images[id]
	if known && now.Sub(t.LastUsed) < usedGranularity && !t.LastUsed.After(now) {
		return nil
	}
	if !known {
		t.FirstSeen = now
	}
	t.LastUsed = now
	u.images[id] = t
	return u.save()
}

// save writes the file.
func (u *usage) save() error {
	text, err := json.Marshal(u.images)
	if err != nil {
		return err
	}
	return durable.WriteCache(u.file, text, 0o600)
}
