// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// passAll passes n events on in the background, and counts those that passed.
func passAll(ctx context.Context, p *pace, n int) *int {
	passed := new(int)
	go func() {
		for i := range n {
			p.pass(ctx, uint64(i+1))
			*passed = i + 1
		}
	}()
	return passed
}

func TestPaceNeedsAWatchToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := passAll(t.Context(), newPace(clock.RealClock{}), 1000)
		synctest.Wait()
		if *passed != 1000 {
			t.Errorf("%d of 1000 events passed although nobody watches", *passed)
		}
	})
}

func TestPaceIsThatOfTheSlowestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPace(clock.RealClock{})
		slow, quick := &reader{}, &reader{}
		p.join(slow)
		p.join(quick)
		passed := passAll(ctx, p, 1000)
		expect := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if *passed != want {
				t.Errorf("%s: %d events passed, want %d", what, *passed, want)
			}
		}
		expect("nobody took any", paceWindow)
		p.saw(quick, 5)
		expect("one is behind", paceWindow)
		p.saw(slow, 2)
		expect("it took two", paceWindow+2)
		p.saw(slow, 1) // of the state that a watch begins with
		expect("an older object came", paceWindow+2)
		p.leave(slow)
		expect("it went", paceWindow+5)
		p.saw(slow, 900)
		expect("one that went counts no more", paceWindow+5)
		late := &reader{}
		p.join(late)
		p.saw(quick, 12)
		expect("what passed before does not concern a new one", paceWindow+12)
		cancel()
		synctest.Wait()
	})
}

func TestPaceHoldsNoEventForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(clock.RealClock{})
		p.join(&reader{})
		began := time.Now()
		for i := range paceWindow + 3 {
			p.pass(t.Context(), uint64(i+1))
		}
		if took := time.Since(began); took != 3*paceLimit {
			t.Errorf("3 events more than the window took %v, want %v", took, 3*paceLimit)
		}
	})
}
