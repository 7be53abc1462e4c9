// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// State is what later steps must know of earlier ones. Thresholds are identified by their index, so that all steps
// must be made with the same ones. The zero State is the first.
type State struct {
	// since is when each threshold that is met, or not yet resolved, was first met.
	since map[int]time.Time
	// due has the thresholds whose grace period is over. They stay until the minimum is reclaimed.
	due map[int]bool
	// seen is when the thresholds of each condition were last met.
	seen map[v1.NodeConditionType]time.Time
	last Observations
}

// Outcome is what follows from an observation.
type Outcome struct {
	// Conditions are the node conditions that hold.
	Conditions []v1.NodeConditionType
	// Met has the thresholds that are met, or not yet resolved.
	Met []Threshold
	// Act has the thresholds for which something must be reclaimed, the first one first.
	Act []Threshold
}

// Step returns the state after an observation, and what follows from it. A threshold whose signal is not observed is
// not met.
func (s State) Step(thresholds []Threshold, transition time.Duration, seen Observations, now time.Time) (State, Outcome) {
	next := State{since: map[int]time.Time{}, due: map[int]bool{}, seen: map[v1.NodeConditionType]time.Time{}, last: seen}
	for condition, at := range s.seen {
		next.seen[condition] = at
	}
	var out Outcome
	for i, t := range thresholds {
		observed, ok := seen[t.Signal]
		if !ok || !t.isMet(observed, s.due[i]) {
			continue
		}
		since, known := s.since[i]
		if !known {
			since = now
		}
		next.since[i] = since
		out.Met = append(out.Met, t)
		next.seen[t.Signal.condition()] = now
		if now.Sub(since) < t.Grace {
			continue
		}
		next.due[i] = true
		if isNew(observed, s.last[t.Signal]) {
			out.Act = append(out.Act, t)
		}
	}
	for _, known := range signals {
		at, ok := next.seen[known.condition]
		if ok && now.Sub(at) < transition && !slices.Contains(out.Conditions, known.condition) {
			out.Conditions = append(out.Conditions, known.condition)
		}
	}
	return next, out
}

// isNew reports whether a signal was measured after the last step. An old value would make the node evict another pod
// before it can know what the last eviction has freed.
func isNew(observed, last Observation) bool {
	return observed.Time.IsZero() || observed.Time.After(last.Time)
}
