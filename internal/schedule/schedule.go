// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule computes the times of CronJobs. Validation parses a schedule with it, and the
// controller of CronJobs asks it which times are due.
//
// The times of a cron expression are absolute, and those of "@every 1h" count from a start: the
// creation of the CronJob, or the last time that was used.
package schedule

import (
	"fmt"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // the API's time zones must not depend on the machine's

	"github.com/robfig/cron/v3"
)

// Schedule is a sequence of times, at whole seconds.
type Schedule struct{ cron cron.Schedule }

// Parse parses a cron expression or a macro such as "@daily". A time zone in the expression takes
// precedence over zone. Without either, the times are local ones.
func Parse(text string, zone *string) (s Schedule, err error) {
	defer func() { // the parser panics on "TZ=0"
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	if zone != nil && !NamesZone(text) {
		text = "TZ=" + *zone + " " + text
	}
	s.cron, err = cron.ParseStandard(text)
	return s, err
}

// NamesZone reports whether a schedule has a time zone of its own, as cron allows.
func NamesZone(text string) bool { return strings.Contains(text, "TZ") }

// Next returns the first time after the given one. It is zero if there is none within five years, as
// for 31 February.
func (s Schedule) Next(after time.Time) time.Time { return s.cron.Next(after) }

// Last returns the last time that is after since and not after now, or zero if there is none. It
// takes about 30 steps, however many times are between.
func (s Schedule) Last(since, now time.Time) time.Time {
	first := s.Next(since)
	if !happened(first, now) {
		return time.Time{}
	}
	passed := now.Sub(first)
	if every, ok := s.cron.(cron.ConstantDelaySchedule); ok {
		return first.Add(passed.Truncate(every.Delay))
	}
	// Times are whole seconds apart, so the one before the first second without a successor is the last.
	after := func(seconds int) time.Time { return s.Next(first.Add(time.Duration(seconds) * time.Second)) }
	none := sort.Search(int(passed/time.Second), func(n int) bool { return !happened(after(n), now) })
	if none == 0 {
		return first
	}
	return after(none - 1)
}

// Exceeds reports whether more than n times are after since and not after now.
func (s Schedule) Exceeds(n int, since, now time.Time) bool {
	t := s.Next(since)
	for range n {
		if !happened(t, now) {
			return false
		}
		t = s.Next(t)
	}
	return happened(t, now)
}

func happened(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
