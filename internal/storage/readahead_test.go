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

func plainReader(source watch.Interface) *reader {
	return (&reader{source: source, taken: func(watch.Event) {}, left: func() {}}).start()
}

func TestReadAheadTakesABurstAndKeepsItsOrder(t *testing.T) {
	source := watch.NewFake() // unbuffered: each Action waits until it is taken
	r := plainReader(source)
	const burst = 1000
	for i := range burst {
		source.Action(event(i).Type, event(i).Object)
	}
	source.Stop()
	for i := range burst {
		got, ok := <-r.ResultChan()
		if !ok || got.Object.(*corev1.Pod).Name != strconv.Itoa(i) {
			t.Fatalf("event %d: %v %v", i, got, ok)
		}
	}
	if extra, ok := <-r.ResultChan(); ok {
		t.Errorf("after the end of the source: %v", extra)
	}
}

func TestReadAheadHasALimit(t *testing.T) {
	source := watch.NewFake()
	r := plainReader(source)
	defer r.Stop()
	for i := range readAheadLimit {
		source.Action(event(i).Type, event(i).Object)
	}
	taken := make(chan struct{})
	go func() {
		source.Action(event(readAheadLimit).Type, event(readAheadLimit).Object)
		close(taken)
	}()
	select {
	case <-taken:
		t.Fatal("took more than the limit")
	default:
	}
	<-r.ResultChan()
	<-taken
}

func TestReadAheadStops(t *testing.T) {
	source := watch.NewFake()
	r := plainReader(source)
	source.Add(&corev1.Pod{}) // nobody takes it
	r.Stop()
	r.Stop()
	for range r.ResultChan() {
		// One event may still be on its way; then the channel is closed.
	}
	if !source.IsStopped() {
		t.Error("the source runs on")
	}
}
