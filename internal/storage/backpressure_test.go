// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

// admitAll sends n events in the background and counts the admitted ones.
func admitAll(ctx context.Context, p *backpressure, n int) *int {
	count := new(int)
	go func() {
		for i := range n {
			p.await(ctx, storeEvent{version: uint64(i + 1)})
			*count = i + 1
		}
	}()
	return count
}

func everything(runtime.Object) bool { return true }

func TestNoWatchNoBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admitted := admitAll(t.Context(), newBackpressure(clock.RealClock{}), 1000)
		synctest.Wait()
		if *admitted != 1000 {
			t.Errorf("%d of 1000 events were admitted, although there is no watch", *admitted)
		}
	})
}

func TestSlowestWatchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newBackpressure(clock.RealClock{})
		slow, quick := &bufferedWatch{}, &bufferedWatch{}
		p.join(slow, everything)
		p.join(quick, everything)
		admitted := admitAll(ctx, p, 1000)
		expect := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if *admitted != want {
				t.Errorf("%s: %d events were admitted, want %d", what, *admitted, want)
			}
		}
		expect("no watch took any", maxInFlight)
		p.took(quick, 5)
		expect("one watch is behind", maxInFlight)
		p.took(slow, 2)
		expect("the slow one took two", maxInFlight+2)
		p.took(slow, 1) // the initial objects of the watch
		expect("the slow one took an older object", maxInFlight+2)
		p.leave(slow)
		expect("the slow one left", maxInFlight+5)
		p.took(slow, 900)
		expect("the one that left takes an event", maxInFlight+5)
		late := &bufferedWatch{}
		p.join(late, everything)
		p.took(quick, 12)
		expect("a new watch does not wait for earlier events", maxInFlight+12)
		cancel()
		synctest.Wait()
	})
}

func TestDelayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBackpressure(clock.RealClock{})
		p.join(&bufferedWatch{}, everything)
		began := time.Now()
		for i := range maxInFlight + 3 {
			p.await(t.Context(), storeEvent{version: uint64(i + 1)})
		}
		if took := time.Since(began); took != 3*maxDelay {
			t.Errorf("3 events beyond the limit took %v, want %v", took, 3*maxDelay)
		}
	})
}

func TestOnlyWatchesThatGetTheEventCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newBackpressure(clock.RealClock{})
		p.join(&bufferedWatch{}, func(runtime.Object) bool { return false })
		admitted := admitAll(ctx, p, 1000)
		synctest.Wait()
		if *admitted != 1000 {
			t.Errorf("%d of 1000 events were admitted with a watch that gets none", *admitted)
		}
		cancel()
	})
}

func TestSelection(t *testing.T) {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "one", Labels: map[string]string{"app": "web"}}}
	labelled := func(value string) storage.SelectionPredicate {
		return storage.SelectionPredicate{
			Label: labels.SelectorFromSet(labels.Set{"app": value}), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr,
		}
	}
	named := storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.OneTermEqualSelector("metadata.name", "a"), GetAttrs: storage.DefaultNamespaceScopedAttr,
	}
	onNode := storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.OneTermEqualSelector("spec.nodeName", "n"), IndexFields: []string{"spec.nodeName"},
	}
	for _, test := range []struct {
		what, key    string
		predicate    storage.SelectionPredicate
		exerts, gets bool
	}{
		{"all", "/pods", storage.Everything, true, true},
		{"the object's namespace", "/pods/one", storage.Everything, true, true},
		{"the same with a slash", "/pods/one/", storage.Everything, true, true},
		{"another namespace", "/pods/other", storage.Everything, true, false},
		{"a namespace whose name is a prefix", "/pods/on", storage.Everything, true, false},
		{"its labels", "/pods", labelled("web"), true, true},
		{"other labels", "/pods", labelled("db"), true, false},
		{"one object", "/pods/one/a", named, false, false},
		{"the pods of one node", "/pods", onNode, false, false},
	} {
		selects := watchBuffer{root: "/pods"}.selection(t.Context(), test.key, test.predicate)
		if (selects != nil) != test.exerts {
			t.Errorf("%s: exerts backpressure: %v, want %v", test.what, selects != nil, test.exerts)
			continue
		}
		if selects != nil && selects(object) != test.gets {
			t.Errorf("%s: gets the event: %v, want %v", test.what, !test.gets, test.gets)
		}
	}
}

// timed is an event's object as etcd3 wraps it for a watch cache.
type timed struct{ runtime.Object }

func (t timed) RecordTime() time.Time  { return time.Time{} }
func (t timed) Unwrap() runtime.Object { return t.Object }

// TestSelectorsGetObjects: a selector compares the object itself. The functions of built-in resources know only their own type.
func TestSelectorsGetObjects(t *testing.T) {
	pod := &corev1.Pod{}
	for name, object := range map[string]runtime.Object{"as it is": pod, "with a time": timed{pod}} {
		if unwrapped(object) != runtime.Object(pod) {
			t.Errorf("%s: the selector gets %T", name, unwrapped(object))
		}
	}
}
