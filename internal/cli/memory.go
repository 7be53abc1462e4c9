// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred"
)

// settling is the time that a cluster works on its start after it is ready, for example to start its
// controllers.
const settling = 5 * time.Second

// free returns the memory that only the start or a burst of work needed to the operating system: its garbage, which may be
// larger than the live heap and which an idle cluster would not collect for minutes, and pages of the binary.
func free() {
	debug.FreeOSMemory()
	if err := unmapPages(); err != nil {
		klog.Background().Error(err, "Cannot unmap the pages of the binary")
	}
}

// The rule of mustFree. A forced collection takes about a millisecond of processor time for each MB of the live heap, and is
// made only after a quarter of the live heap was allocated, at less than idleRate. So it takes at most 2 ms / (1 s / 4) =
// 0.8 % of a processor, however large the heap is, and less the fewer is allocated.
const (
	freePeriod = 5 * time.Second
	// idleRate is the rate of allocations, in bytes per second, below which the process is idle.
	idleRate = 2 << 20
	// freeLeast is the least memory, in bytes, that is worth a collection.
	freeLeast = 16 << 20
)

// usage is the memory of the process, in bytes.
type usage struct {
	allocated uint64 // since the start
	objects   uint64 // garbage included
	live      uint64 // found by the last collection
	free      uint64 // of the heap, and not returned to the operating system
}

// mustFree reports whether to return memory to the operating system: the process was idle since before, and much of its memory
// is garbage or free. While it works, Go's own collections are cheaper, because they use the memory again.
func mustFree(before, now usage, elapsed time.Duration) bool {
	if float64(now.allocated-before.allocated) > idleRate*elapsed.Seconds() {
		return false
	}
	unused := now.free
	if now.objects > now.live {
		unused += now.objects - now.live
	}
	return unused > max(freeLeast, now.live/4)
}

// keepFree returns memory to the operating system whenever the process is idle, for example after a burst of work, until ctx
// ends. Go returns free memory over minutes, and an idle process collects its garbage only when the heap has tripled. GOGC or
// GOMEMLIMIT in the environment leave that to Go alone.
func keepFree(ctx context.Context, c clock.WithTicker) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ticker := c.NewTicker(freePeriod)
	defer ticker.Stop()
	before := readUsage()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := readUsage()
		if mustFree(before, now, freePeriod) {
			free()
		}
		before = now
	}
}

func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return usage{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}

// keepToCgroup derives Go's memory limit from the limit of the process's cgroup, if there is one. GOMEMLIMIT takes precedence.
func keepToCgroup() {
	limit, err := memlimit.Set(memlimit.WithRatio(kindred.GoMemoryShare), memlimit.WithProvider(memlimit.FromCgroup))
	if err != nil {
		// A cluster also works without a limit.
		klog.Background().Info("The memory limit of the cgroup is unknown", "reason", err)
		return
	}
	klog.Background().V(2).Info("Go's memory limit", "bytes", limit)
}
