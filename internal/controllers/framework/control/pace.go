// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// An owner is reconciled at each change of a child, and looks at all of its children each time, about a microsecond for each. When
// thousands of them start, that would be most of the work. So an owner of more than unpaced children is not reconciled again for
// pausePerChild for each of them, which leaves it a tenth of a processor.
const (
	unpaced       = 100
	pausePerChild = 10 * time.Microsecond
)

// Pace makes pauses between the reconciliations of large objects. The first one after a pause is not delayed.
type Pace struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	next map[types.NamespacedName]time.Time
}

// NewPace returns a Pace.
func NewPace(clock clock.PassiveClock) *Pace {
	return &Pace{clock: clock, next: map[types.NamespacedName]time.Time{}}
}

// Wait returns how long an object is not to be reconciled yet; 0 if it is.
func (p *Pace) Wait(object types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, paused := p.next[object]
	if !paused {
		return 0
	}
	if wait := next.Sub(p.clock.Now()); wait > 0 {
		return wait
	}
	delete(p.next, object)
	return 0
}

// Reconciled begins the pause of an object that has been reconciled with so many children.
func (p *Pace) Reconciled(object types.NamespacedName, children int) {
	if children <= unpaced {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[object] = p.clock.Now().Add(time.Duration(children) * pausePerChild)
}
