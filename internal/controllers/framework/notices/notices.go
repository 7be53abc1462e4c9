// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices records events about states. A Reconcile may find the same state again and again;
// its event is recorded when the state begins, and repeated only before the API deletes it.
package notices

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// repetition is the least time between two events about one state. The API keeps events for an hour.
const repetition = 30 * time.Minute

// Notice is an event about an object.
type Notice struct {
	Type, Reason, Message string
	// At is a time in Unix seconds that the notice is about, or 0. Two times are two states.
	At int64
}

// Warning returns a Notice of that type.
func Warning(reason, message string) Notice {
	return Notice{Type: corev1.EventTypeWarning, Reason: reason, Message: message}
}

// Normal returns a Notice of that type.
func Normal(reason, message string) Notice {
	return Notice{Type: corev1.EventTypeNormal, Reason: reason, Message: message}
}

// About returns the notice with a time.
func (n Notice) About(t time.Time) Notice {
	n.At = t.Unix()
	return n
}

// Board holds the notices that apply to each object.
type Board struct {
	events record.EventRecorder
	clock  clock.PassiveClock

	mu     sync.Mutex
	posted map[types.NamespacedName]posted
}

// posted holds when each notice about the object with this UID was recorded.
type posted struct {
	uid types.UID
	at  map[Notice]time.Time
}

// NewBoard returns a Board that records events with the given recorder.
func NewBoard(events record.EventRecorder, clock clock.PassiveClock) *Board {
	return &Board{events: events, clock: clock, posted: map[types.NamespacedName]posted{}}
}

// Record records events at once.
func (b *Board) Record(obj client.Object, notices []Notice) {
	for _, n := range notices {
		b.events.Event(obj, n.Type, n.Reason, n.Message)
	}
}

// Post replaces the notices that apply to an object, and records those that are new.
func (b *Board) Post(obj client.Object, notices []Notice) {
	b.Record(obj, b.replace(obj, notices))
}

func (b *Board) replace(obj client.Object, notices []Notice) (fresh []Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, now := client.ObjectKeyFromObject(obj), b.clock.Now()
	before := b.posted[key]
	if before.uid != obj.GetUID() {
		before.at = nil
	}
	after := posted{uid: obj.GetUID(), at: map[Notice]time.Time{}}
	for _, n := range notices {
		at, known := before.at[n]
		if !known || now.Sub(at) >= repetition {
			at = now
			fresh = append(fresh, n)
		}
		after.at[n] = at
	}
	if len(notices) == 0 {
		delete(b.posted, key)
	} else {
		b.posted[key] = after
	}
	return fresh
}

// Forget drops the notices of an object that does not exist any more.
func (b *Board) Forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.posted, key)
}
