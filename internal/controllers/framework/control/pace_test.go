// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

func TestPace(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	p := NewPace(clock)
	large, small := types.NamespacedName{Name: "large"}, types.NamespacedName{Name: "small"}
	expect := func(object types.NamespacedName, want time.Duration) {
		t.Helper()
		if got := p.Wait(object); got != want {
			t.Errorf("%s waits %v, want %v", object.Name, got, want)
		}
	}
	expect(large, 0)
	p.Reconciled(large, 2000)
	p.Reconciled(small, 100)
	expect(large, 20*time.Millisecond)
	expect(small, 0)
	clock.SetTime(clock.Now().Add(15 * time.Millisecond))
	expect(large, 5*time.Millisecond)
	clock.SetTime(clock.Now().Add(5 * time.Millisecond))
	expect(large, 0)
	if len(p.next) > 0 {
		t.Errorf("%v is kept", p.next)
	}
}
