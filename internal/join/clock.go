// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxSkew is how much the clocks of two machines may differ. Certificates are valid from five minutes before they are signed.
const maxSkew = 5 * time.Minute

// observing returns a wrapper of transports that calls observe after each response, with how far this machine's clock is ahead of that of the
// server, by the Date of the response (RFC 9110).
func observing(clock clock.PassiveClock, observe func(skew time.Duration)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
				observe(clock.Since(date))
			}
			return response, nil
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// checkSkew returns an error if the clock is so far off that certificates of the server may not be valid here.
func checkSkew(skew time.Duration) error {
	if skew.Abs() <= maxSkew {
		return nil
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return fmt.Errorf("this machine's clock is %v %s the server's: its certificates would not be valid here; set the clock", skew.Abs().Round(time.Second), direction)
}

// clockWatch says once that the clock is off, and once that it is right again.
type clockWatch struct {
	clock  clock.PassiveClock
	notice func(line string)

	mu    sync.Mutex
	isOff bool
}

func watchClock(clock clock.PassiveClock) *clockWatch {
	return &clockWatch{clock: clock, notice: func(string) {}}
}

func (w *clockWatch) wrap(next http.RoundTripper) http.RoundTripper {
	return observing(w.clock, w.observe)(next)
}

func (w *clockWatch) observe(skew time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := checkSkew(skew)
	switch {
	case err != nil && !w.isOff:
		w.notice(err.Error())
	case err == nil && w.isOff:
		w.notice("this machine's clock is right again")
	}
	w.isOff = err != nil
}
