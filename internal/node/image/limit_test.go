// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestParallelPulls: at most as many images are pulled at a time as Limits says. Other pulls wait, and then succeed.
func TestParallelPulls(t *testing.T) {
	for parallel, want := range map[int64]int{0: 5, 1: 1, 2: 2, 9: 5} {
		f := newFixture(t)
		f.limiter = newLimiter(Limits{Parallel: parallel}, f.clock)
		f.registry.block = make(chan struct{})
		var pulls sync.WaitGroup
		for i := range 5 {
			pulls.Go(func() {
				image := fmt.Sprintf("registry.test/app:%d", i)
				if _, failure := f.ensure(podOf(fmt.Sprint(i), image, v1.PullIfNotPresent)); failure != nil {
					t.Errorf("%d in parallel: %v", parallel, failure)
				}
			})
		}
		begun := func(count int) bool {
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if f.registry.pullCount() == count {
					return true
				}
			}
			return false
		}
		if !begun(want) {
			t.Errorf("%d in parallel: %d pulls have begun, want %d", parallel, f.registry.pullCount(), want)
		}
		time.Sleep(20 * time.Millisecond)
		if got := f.registry.pullCount(); got != want {
			t.Errorf("%d in parallel: then %d pulls, want %d", parallel, got, want)
		}
		close(f.registry.block)
		pulls.Wait()
		if got := f.registry.pullCount(); got != 5 {
			t.Errorf("%d in parallel: %d pulls at the end", parallel, got)
		}
	}
}

// TestWaitingPullEndsWithTheAgent: a pull that waits for its turn does not begin after the agent has ended.
func TestWaitingPullEndsWithTheAgent(t *testing.T) {
	f := newFixture(t)
	f.limiter = newLimiter(Limits{Parallel: 1}, f.clock)
	end, err := f.limiter.wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	f.cancel()
	if _, failure := f.ensure(podOf("p", name, v1.PullIfNotPresent)); failure == nil || f.registry.pullCount() != 0 {
		t.Errorf("%v after %d pulls", failure, f.registry.pullCount())
	}
}

// TestPullRate: a pull that exceeds the rate fails as upstream's, and is retried with backoff. An image that is present costs nothing.
func TestPullRate(t *testing.T) {
	f := newFixture(t)
	f.limiter = newLimiter(Limits{PerSecond: 2, Burst: 3}, f.clock)
	pull := func(i int) string {
		image := fmt.Sprintf("registry.test/app:%d", i)
		if _, failure := f.ensure(podOf(fmt.Sprint(i), image, v1.PullIfNotPresent)); failure != nil {
			return failure.Reason + ": " + failure.Message
		}
		return ""
	}
	for i := range 3 {
		if got := pull(i); got != "" {
			t.Errorf("pull %d of the burst: %s", i, got)
		}
	}
	if got := pull(0); got != "" {
		t.Errorf("a present image: %s", got)
	}
	f.events()
	if got, want := pull(3), "ErrImagePull: pull QPS exceeded"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{
		`Normal Pulling Pulling image "registry.test/app:3"`,
		`Warning Failed Failed to pull image "registry.test/app:3": pull QPS exceeded`,
		"Warning Failed Error: ErrImagePull",
	}, f.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.clock.Step(500 * time.Millisecond)
	if got := pull(4); got != "" {
		t.Errorf("a pull when the rate allows it: %s", got)
	}
	if got, want := pull(3), `ImagePullBackOff: Back-off pulling image "registry.test/app:3": ErrImagePull: pull QPS exceeded`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.clock.Step(10 * time.Second)
	if got := pull(3); got != "" {
		t.Errorf("a retry: %s", got)
	}
	if got := f.registry.pullCount(); got != 5 {
		t.Errorf("%d pulls, want 5", got)
	}
}
