// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// noisy is a store whose watches hear a bookmark, and then of an object.
type noisy struct{ storage.Interface }

func (noisy) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(2, false)
	w.Action(watch.Bookmark, &corev1.Event{})
	w.Add(&corev1.Event{})
	return w, nil
}

func TestBookmarksAreForThoseWhoAsk(t *testing.T) {
	for name, test := range map[string]struct {
		opts storage.ListOptions
		want watch.EventType
	}{
		"not asked":   {storage.ListOptions{}, watch.Added},
		"a cache":     {storage.ListOptions{ProgressNotify: true}, watch.Bookmark},
		"an API call": {storage.ListOptions{Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}}, watch.Bookmark},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := bookmarks{noisy{}}.Watch(t.Context(), "/events", test.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if e := <-w.ResultChan(); e.Type != test.want {
				t.Errorf("first comes %s, want %s", e.Type, test.want)
			}
		})
	}
}

// TestQuietWatchEndsWithItsReader: who stops a watch need not read it empty.
func TestQuietWatchEndsWithItsReader(t *testing.T) {
	w, err := bookmarks{noisy{}}.Watch(t.Context(), "/events", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	w.Stop() // twice is once
	for range w.ResultChan() {
		// At most the event that was in hand; then the channel is closed.
	}
}
