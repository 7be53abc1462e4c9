// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

// TestClockWatch: a machine whose clock goes wrong after it has joined says so once.
func TestClockWatch(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := testingclock.NewFakePassiveClock(date)
	w := watchClock(clock)
	var said []string
	w.notice = func(line string) { said = append(said, line) }
	transport := w.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Date": {date.Format(http.TimeFormat)}}, Body: http.NoBody}, nil
	}))
	for _, skew := range []time.Duration{0, 4 * time.Minute, time.Hour, time.Hour, 0, 0, -10 * time.Minute} {
		clock.SetTime(date.Add(skew))
		response, err := transport.RoundTrip(&http.Request{})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	want := []string{
		"this machine's clock is 1h0m0s ahead of the server's: its certificates would not be valid here; set the clock",
		"this machine's clock is right again",
		"this machine's clock is 10m0s behind the server's: its certificates would not be valid here; set the clock",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
}
