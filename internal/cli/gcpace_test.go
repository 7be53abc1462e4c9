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
	for rate, want := range map[float64]int{0: 100, 20 * mb: 100, 60 * mb: 120, 75 * mb: 150, 100 * mb: 200, 1000 * mb: 200} {
		if got := gcPercent(rate); got != want {
			t.Errorf("%g MB/s: %d %%, want %d %%", rate/mb, got, want)
		}
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
