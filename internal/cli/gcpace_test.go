// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for _, test := range []struct {
		rate float64
		live uint64
		room uint64
		want int
	}{
		{0, 80 * mb, 6144 * mb, 100},
		{20 * mb, 80 * mb, 6144 * mb, 100},
		{60 * mb, 80 * mb, 6144 * mb, 120},
		{75 * mb, 80 * mb, 6144 * mb, 150},
		{100 * mb, 80 * mb, 6144 * mb, 200},
		{1000 * mb, 80 * mb, 6144 * mb, 200},
		{1000 * mb, 0, 6144 * mb, 200},
		{1000 * mb, 128 * mb, 6144 * mb, 150},
		{1000 * mb, 256 * mb, 6144 * mb, 100},
		{0, 512 * mb, 6144 * mb, 75},
		{1000 * mb, 512 * mb, 6144 * mb, 75},
		{1000 * mb, 768 * mb, 6144 * mb, 116},
		{1000 * mb, 1024 * mb, 6144 * mb, 137},
		{1000 * mb, 1280 * mb, 1024 * mb, 80},
		{1000 * mb, 2048 * mb, 6144 * mb, 168},
		{60 * mb, 2048 * mb, 6144 * mb, 120},
		{1000 * mb, 1024 * mb, 512 * mb, 62},
		{1000 * mb, 6144 * mb, 6144 * mb, 100},
		{1000 * mb, 1 << 40, 6144 * mb, 50},
	} {
		if got := gcPercent(test.rate, test.live, test.room); got != test.want {
			t.Errorf("%g MB/s, %d MB live, %d MB of room: %d %%, want %d %%", test.rate/mb, test.live/mb, test.room/mb, got, test.want)
		}
	}
}

// TestRoomForGarbage: a memory limit below the memory of the machine counts instead of that.
func TestRoomForGarbage(t *testing.T) {
	all := roomForGarbage()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	if got := roomForGarbage(); got != 64<<20 || all <= got {
		t.Errorf("%d bytes with a limit of 256 MiB, %d without", got, all)
	}
}

// TestPaceGC: a process that allocates nothing gets the smallest heap, unless the environment says otherwise.
func TestPaceGC(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for environment, want := range map[string]int{"": gcLeast, "150": 150} {
		t.Setenv("GOGC", environment)
		debug.SetGCPercent(150)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go paceGC(ctx, clock.RealClock{})
			time.Sleep(2*gcPeriod + time.Millisecond)
			cancel()
			synctest.Wait()
		})
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d, want %d", environment, got, want)
		}
	}
}
