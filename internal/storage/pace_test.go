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

// passAll passes n events on in the background, and counts those that passed.
func passAll(ctx context.Context, p *pace, n int) *int {
	count := new(int)
	go func() {
		for i := range n {
			p.pass(ctx, passed{version: uint64(i + 1)})
			*count = i + 1
		}
	}()
	return count
}

func everything(runtime.Object) bool { return true }

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
		p.join(slow, everything)
		p.join(quick, everything)
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
		p.join(late, everything)
		p.saw(quick, 12)
		expect("what passed before does not concern a new one", paceWindow+12)
		cancel()
		synctest.Wait()
	})
}

func TestPaceHoldsNoEventForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(clock.RealClock{})
		p.join(&reader{}, everything)
		began := time.Now()
		for i := range paceWindow + 3 {
			p.pass(t.Context(), passed{version: uint64(i + 1)})
		}
		if took := time.Since(began); took != 3*paceLimit {
			t.Errorf("3 events more than the window took %v, want %v", took, 3*paceLimit)
		}
	})
}

func TestPaceWaitsOnlyForThoseWhoGetTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPace(clock.RealClock{})
		p.join(&reader{}, func(runtime.Object) bool { return false })
		passed := passAll(ctx, p, 1000)
		synctest.Wait()
		if *passed != 1000 {
			t.Errorf("%d of 1000 events passed a watch that gets none", *passed)
		}
		cancel()
	})
}

func TestInterest(t *testing.T) {
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
		what, key   string
		predicate   storage.SelectionPredicate
		paces, gets bool
	}{
		{"all", "/pods", storage.Everything, true, true},
		{"the object's namespace", "/pods/one", storage.Everything, true, true},
		{"the same with a slash", "/pods/one/", storage.Everything, true, true},
		{"another namespace", "/pods/other", storage.Everything, true, false},
		{"a namespace whose name begins alike", "/pods/on", storage.Everything, true, false},
		{"its labels", "/pods", labelled("web"), true, true},
		{"other labels", "/pods", labelled("db"), true, false},
		{"one object", "/pods/one/a", named, false, false},
		{"one node's", "/pods", onNode, false, false},
	} {
		wants := readAhead{root: "/pods"}.interest(t.Context(), test.key, test.predicate)
		if (wants != nil) != test.paces {
			t.Errorf("%s: sets the pace: %v, want %v", test.what, wants != nil, test.paces)
			continue
		}
		if wants != nil && wants(object) != test.gets {
			t.Errorf("%s: gets the event: %v, want %v", test.what, !test.gets, test.gets)
		}
	}
}
