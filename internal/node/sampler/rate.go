// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import "time"

// points are the CPU times of cgroups at one time.
type points struct {
	at  time.Time
	cpu map[string]time.Duration
}

// bases are the last two points.
type bases struct{ newest, before points }

func (b *bases) push(p points) { b.newest, b.before = p, b.newest }

// minWindow is the shortest time for a rate: the kernel counts CPU time in ticks, so that shorter ones are inexact.
const minWindow = 2 * time.Second

// rate returns the nanoseconds of CPU time per second since the newest point that is old enough. It is nil if there is
// none, or if the counter has started again.
func (b *bases) rate(cgroup string, cpu time.Duration, at time.Time) *uint64 {
	for _, p := range []points{b.newest, b.before} {
		window := at.Sub(p.at)
		before, ok := p.cpu[cgroup]
		if !ok || window < minWindow {
			continue
		}
		if cpu < before {
			return nil
		}
		rate := uint64(float64(cpu-before) / window.Seconds())
		return &rate
	}
	return nil
}
