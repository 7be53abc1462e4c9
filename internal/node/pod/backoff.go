// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// The documented back-off of restarts: none before the first, then 10 s, doubling up to 5 minutes or to what the node has
// instead (KEP-4603), which may be less than 10 s. A run of more than 10 minutes resets it.
const (
	backOffFirst = 10 * time.Second
	backOffMax   = 5 * time.Minute
	backOffReset = 10 * time.Minute
)

// The pauses after a Failure: the first, and the longest.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

// restartDelay returns the delay between the end of a run and the next run, and the delay that
// follows the next run. Both are at most the node's maximum.
func (d *decision) restartDelay(c *v1.Container, ended runtime.Container) (delay, next time.Duration) {
	longest := cmp.Or(d.MaxRestartDelay, backOffMax)
	first := min(backOffFirst, longest)
	// Measured from the creation, because a run that failed to start has no start time.
	ran := ended.FinishedAt.Sub(ended.CreatedAt)
	if changed(d.Pod, c, ended) || ran > backOffReset {
		return 0, first
	}
	if ended.BackOff == 0 {
		return 0, first
	}
	delay = min(ended.BackOff, longest) // an earlier agent may have had another maximum
	return delay, min(2*delay, longest)
}

// BackOffAt returns the delay that follows a run with this number, for a run whose own delay is
// unknown.
func BackOffAt(attempt uint32) time.Duration {
	if attempt == 0 {
		return 0
	}
	return min(backOffFirst<<min(attempt-1, 10), backOffMax)
}

// Fail returns the failure after one more failed attempt.
func (f Failure) Fail(reason, message string, now time.Time) Failure {
	pause := retryMax
	if f.Count < 5 {
		pause = min(retryFirst<<f.Count, retryMax)
	}
	return Failure{Reason: reason, Message: message, Count: f.Count + 1, RetryAt: now.Add(pause)}
}
