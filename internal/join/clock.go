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

// dated notes how far this machine's clock is from that of a server, by the Date of its responses (RFC 9110).
type dated struct {
	clock clock.PassiveClock
	// onSkew is called after each response. It may be nil.
	onSkew func()

	mu   sync.Mutex
	skew time.Duration
}

func (d *dated) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			d.note(d.clock.Since(date))
		}
		return response, nil
	})
}

func (d *dated) note(skew time.Duration) {
	d.mu.Lock()
	d.skew = skew
	d.mu.Unlock()
	if d.onSkew != nil {
		d.onSkew()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// check returns an error if the clock is so far off that certificates of the server may not be valid here.
func (d *dated) check() error {
	d.mu.Lock()
	skew := d.skew
	d.mu.Unlock()
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
	dated
	notice func(line string)

	saying sync.Mutex
	isOff  bool
}

func watchClock(clock clock.PassiveClock) *clockWatch {
	w := &clockWatch{dated: dated{clock: clock}, notice: func(string) {}}
	w.onSkew = w.say
	return w
}

func (w *clockWatch) say() {
	w.saying.Lock()
	defer w.saying.Unlock()
	err := w.check()
	switch {
	case err != nil && !w.isOff:
		w.notice(err.Error())
	case err == nil && w.isOff:
		w.notice("this machine's clock is right again")
	}
	w.isOff = err != nil
}
