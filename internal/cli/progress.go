// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/kubectl/pkg/util/term"
	"k8s.io/utils/clock"
)

const (
	// progressAfter is the delay before the first line of progress if the output is not a
	// terminal.
	progressAfter = 2 * time.Second
	// progressEvery is the interval between lines of progress there.
	progressEvery = 5 * time.Second
)

// progress shows the progress of work that takes several requests: on a terminal in one line that
// is overwritten, elsewhere in a line from time to time.
type progress struct {
	out   io.Writer
	line  *progressLine
	clock clock.WithTicker
	began time.Time

	mu   sync.Mutex
	text string

	ended chan struct{}
	done  sync.WaitGroup
}

// newProgress returns a progress that displays the text given to show until end is called.
func newProgress(out io.Writer, c clock.WithTicker) *progress {
	p := &progress{out: out, clock: c, began: c.Now(), ended: make(chan struct{})}
	wait := progressAfter
	if term.IsTerminal(out) {
		p.line = newProgressLine(out)
		wait = time.Second
	}
	timer := c.NewTimer(wait)
	p.done.Go(func() {
		defer timer.Stop()
		for {
			select {
			case <-p.ended:
				return
			case <-timer.C():
			}
			p.print()
			if p.line == nil {
				timer.Reset(progressEvery)
			} else {
				timer.Reset(time.Second)
			}
		}
	})
	return p
}

// show changes the displayed text.
func (p *progress) show(text string) {
	p.mu.Lock()
	p.text = text
	p.mu.Unlock()
	if p.line != nil {
		p.print()
	}
}

func (p *progress) print() {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := p.clock.Since(p.began).Truncate(time.Second)
	if p.line == nil {
		_, _ = fmt.Fprintf(p.out, "%s (%s)\n", p.text, elapsed)
		return
	}
	text := p.text
	if elapsed >= progressAfter {
		text = fmt.Sprintf("%s (%s)", text, elapsed)
	}
	p.line.show(text)
}

// end stops the display. It may be called again.
func (p *progress) end() {
	select {
	case <-p.ended:
		return
	default:
	}
	close(p.ended)
	p.done.Wait()
	if p.line != nil {
		p.line.clear()
	}
}
