// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func parse(t *testing.T, text, zone string) Schedule {
	t.Helper()
	s, err := Parse(text, &zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestLast(t *testing.T) {
	for _, tt := range []struct{ name, schedule, zone, since, now, want string }{
		{"not due", "0 * * * *", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T10:59:59Z", ""},
		{"due now", "0 * * * *", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T11:00:00Z"},
		{"since is excluded", "0 * * * *", "UTC", "2026-01-01T11:00:00Z", "2026-01-01T11:00:00Z", ""},
		{"two missed", "0 * * * *", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T12:30:00Z", "2026-01-01T12:00:00Z"},
		{"a year missed", "30 6-16/4 * * 1-5", "UTC", "2025-01-01T00:00:00Z", "2026-01-04T12:00:00Z", "2026-01-02T14:30:00Z"},
		{"one burst a year", "* * 1 1 *", "UTC", "2020-01-01T12:00:00Z", "2025-06-01T00:00:00Z", "2025-01-01T23:59:00Z"},
		{"a zone", "0 8 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-01T02:30:00Z"},
		{"a zone in the schedule wins", "TZ=Asia/Tokyo 0 8 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-01T23:00:00Z"},
		{"an hour that daylight saving skips", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", ""},
		{"an hour that daylight saving repeats", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", "2026-10-25T01:30:00Z"},
		{"every, from the start", "@every 1h", "UTC", "2026-01-01T10:07:00Z", "2026-01-01T13:10:00Z", "2026-01-01T13:07:00Z"},
		{"every, not due", "@every 1h", "UTC", "2026-01-01T10:07:00Z", "2026-01-01T11:06:59Z", ""},
		{"the clock was set back", "* * * * *", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z", ""},
		{"never", "59 23 31 2 *", "UTC", "2026-01-01T10:00:00Z", "2029-01-01T10:00:00Z", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, tt.schedule, tt.zone).Last(at(t, tt.since), at(t, tt.now))
			if want := at(t, tt.want); !got.Equal(want) {
				t.Errorf("got %v, want %v", got.UTC(), want)
			}
		})
	}
}

// TestLastIsTheLast compares Last with a walk through all times.
func TestLastIsTheLast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe"}
	for range 300 {
		text := fmt.Sprintf("%d-%d/%d %d,%d * * %d-6", rng.IntN(20), 20+rng.IntN(40), 1+rng.IntN(20), rng.IntN(12), 12+rng.IntN(12), rng.IntN(6))
		s := parse(t, text, zones[rng.IntN(len(zones))])
		since := time.Unix(1_760_000_000+rng.Int64N(20_000_000), rng.Int64N(1e9))
		now := since.Add(time.Duration(rng.Int64N(int64(60 * 24 * time.Hour))))
		var want time.Time
		count := 0
		for next := s.Next(since); !next.After(now); next = s.Next(next) {
			want = next
			count++
		}
		if got := s.Last(since, now); !got.Equal(want) {
			t.Fatalf("%q from %v to %v: got %v, want %v", text, since, now, got, want)
		}
		if !s.Exceeds(count-1, since, now) && count > 0 || s.Exceeds(count, since, now) {
			t.Fatalf("%q from %v to %v: does not count %d", text, since, now, count)
		}
	}
}

func TestParseReportsErrors(t *testing.T) {
	for _, text := range []string{"TZ=0", "a b c d e", "* * * *", "@never"} {
		if _, err := Parse(text, nil); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	unknown := "Nowhere/At-All"
	if _, err := Parse("* * * * *", &unknown); err == nil {
		t.Error("no error for an unknown time zone")
	}
}
