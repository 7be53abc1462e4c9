// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/utils/clock"
)

// A collection takes about a millisecond of processor time for each MB of the live heap, and comes after GOGC percent of the
// live heap were allocated. So collections take (rate in MB/s) / (GOGC / 100) milliseconds in each second, however large the heap
// is. gcPercent chooses the GOGC with which that is gcShare of a processor: a small heap while little is allocated, and fewer
// collections while much is. A small heap also keeps together what outlives its garbage: Go does not move objects.
const (
	gcShare = 0.05
	gcLeast = 100 // Go's default
	// gcMost takes half of the collections of the default, which spends a fifth of the processor time on them while many objects
	// are written.
	gcMost = 200
	// gcGarbage is how much garbage a large heap may have before a collection, in bytes, in addition to half of what is live. It
	// is more than gcMost allows a small one. So the heap of a loaded cluster does not triple, for some more collections.
	gcGarbage = 128 << 20
	// gcLarge is the live heap, in bytes, of a cluster with some hundred nodes. Marking a larger one takes most of a second of processor time, so
	// that it may have more garbage: gcSlope bytes for each byte beyond gcLarge, and a gcRoom of the machine's memory at most.
	gcLarge = 512 << 20
	gcSlope = 1.5
	gcRoom  = 0.25
	// gcPeriod is how often the rate is measured. It is shorter than a burst of writes, which may take a second.
	gcPeriod = 250 * time.Millisecond
)

// gcPercent returns GOGC for a rate of allocations, in bytes per second, a live heap, in bytes, and the memory, in bytes, that a
// large heap may use for its garbage.
func gcPercent(rate float64, live, room uint64) int {
	milliseconds := rate / (1 << 20) // of collections in each second, with a GOGC of 100
	percent := min(max(int(milliseconds*100/(gcShare*1000)), gcLeast), gcMost)
	garbage := live/2 + gcGarbage
	if live > gcLarge {
		garbage = max(garbage, min(garbage+uint64(gcSlope*float64(live-gcLarge)), room))
	}
	return min(percent, int(100*garbage/max(live, 1)))
}

// paceGC sets GOGC by the rate of allocations and the live heap until ctx ends, unless GOGC is set in the environment. It is called after the
// start: with a higher percentage the objects that a start keeps would be scattered among its garbage.
func paceGC(ctx context.Context, c clock.WithTicker) {
	if os.Getenv("GOGC") != "" {
		return
	}
	ticker := c.NewTicker(gcPeriod)
	defer ticker.Stop()
	before, percent, room := readUsage(), 0, roomForGarbage()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := readUsage()
		next := gcPercent(float64(now.allocated-before.allocated)/gcPeriod.Seconds(), now.live, room)
		// Each change stops the process for a moment, so that small ones are left out.
		if next > percent*5/4 || next < percent*4/5 {
			debug.SetGCPercent(next)
			percent = next
		}
		before = now
	}
}

// roomForGarbage returns how much garbage a large heap may have, in bytes: a share of the machine's memory, or of Go's memory limit if that is
// lower (see keepToCgroup).
func roomForGarbage() uint64 {
	total, err := memlimit.FromSystem()
	if err != nil {
		return 0 // as a small heap
	}
	limit := debug.SetMemoryLimit(-1) // does not change it
	return uint64(gcRoom * float64(min(total, uint64(limit))))
}
