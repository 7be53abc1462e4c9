// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func event(i int) watch.Event {
	return watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}}}
}

func startBuffered(source watch.Interface) *bufferedWatch {
	return (&bufferedWatch{source: source, limit: bufferLimit, onEvent: func(watch.Event) {}, onLeave: func() {}}).start()
}

func TestBufferKeepsOrderOfBurst(t *testing.T) {
	source := watch.NewFake() // unbuffered: each Action blocks until it is read
	w := startBuffered(source)
	const burst = 1000
	for i := range burst {
		source.Action(event(i).Type, event(i).Object)
	}
	source.Stop()
	for i := range burst {
		got, ok := <-w.ResultChan()
		if !ok || got.Object.(*corev1.Pod).Name != strconv.Itoa(i) {
			t.Fatalf("event %d: %v %v", i, got, ok)
		}
	}
	if extra, ok := <-w.ResultChan(); ok {
		t.Errorf("after the end of the source: %v", extra)
	}
}

func TestBufferIsBounded(t *testing.T) {
	source := watch.NewFake()
	w := startBuffered(source)
	defer w.Stop()
	for i := range bufferLimit {
		source.Action(event(i).Type, event(i).Object)
	}
	taken := make(chan struct{})
	go func() {
		source.Action(event(bufferLimit).Type, event(bufferLimit).Object)
		close(taken)
	}()
	select {
	case <-taken:
		t.Fatal("took more than the limit")
	default:
	}
	<-w.ResultChan()
	<-taken
}

func TestOwnWatchesAreNotBounded(t *testing.T) {
	if got := limitOf(t.Context()); got != bufferLimit {
		t.Errorf("the limit of a client is %d", got)
	}
	source := watch.NewFake()
	w := &bufferedWatch{source: source, limit: limitOf(Own(t.Context())), onEvent: func(watch.Event) {}, onLeave: func() {}}
	defer w.start().Stop()
	for i := range 2 * bufferLimit {
		source.Action(event(i).Type, event(i).Object)
	}
}

func TestBufferedWatchStops(t *testing.T) {
	source := watch.NewFake()
	w := startBuffered(source)
	source.Add(&corev1.Pod{}) // not read
	w.Stop()
	w.Stop()
	for range w.ResultChan() {
		// At most one more event; then the channel is closed.
	}
	if !source.IsStopped() {
		t.Error("the source was not stopped")
	}
}
