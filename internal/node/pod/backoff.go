// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// The documented back-off of restarts: none before the first, then 10 s, doubling
// up to 5 minutes, and from the start again after a run of 10 minutes.
const (
	backOffFirst = 10 * time.Second
	backOffMax   = 5 * time.Minute
	backOffReset = 10 * time.Minute
)

// The pauses between attempts to start what could not even be created.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

// restartDelay says how long to wait after the end of a run before the next, and
// what the next run's own delay is.
func restartDelay(c *v1.Container, ended runtime.Container) (delay, next time.Duration) {
	// From its creation: a run that failed to start has no other time.
	ran := ended.FinishedAt.Sub(ended.CreatedAt)
	if changed(c, ended) || ran > backOffReset {
		return 0, backOffFirst
	}
	if ended.BackOff == 0 {
		return 0, backOffFirst
	}
	return ended.BackOff, min(2*ended.BackOff, backOffMax)
}

// BackOffAt is the delay of a run by its number, when nothing else is known of the runs
// before it.
func BackOffAt(attempt uint32) time.Duration {
	if attempt == 0 {
		return 0
	}
	return min(backOffFirst<<min(attempt-1, 10), backOffMax)
}

// Fail notes one more failed attempt and when to try again.
func (f Failure) Fail(reason, message string, now time.Time) Failure {
	pause := retryMax
	if f.Count < 5 {
		pause = min(retryFirst<<f.Count, retryMax)
	}
	return Failure{Reason: reason, Message: message, Count: f.Count + 1, RetryAt: now.Add(pause)}
}
