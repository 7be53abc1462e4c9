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

// withBookmark is a store whose watches send a bookmark and then an object.
type withBookmark struct{ storage.Interface }

func (withBookmark) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(2, false)
	w.Action(watch.Bookmark, &corev1.Event{})
	w.Add(&corev1.Event{})
	return w, nil
}

func TestBookmarksOnlyOnRequest(t *testing.T) {
	for name, test := range map[string]struct {
		opts storage.ListOptions
		want watch.EventType
	}{
		"not requested":  {storage.ListOptions{}, watch.Added},
		"by a cache":     {storage.ListOptions{ProgressNotify: true}, watch.Bookmark},
		"by an API call": {storage.ListOptions{Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}}, watch.Bookmark},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := bookmarkFilter{withBookmark{}}.Watch(t.Context(), "/events", test.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if e := <-w.ResultChan(); e.Type != test.want {
				t.Errorf("the first event is %s, want %s", e.Type, test.want)
			}
		})
	}
}

// TestFilteredWatchStops: a stopped watch need not be drained.
func TestFilteredWatchStops(t *testing.T) {
	w, err := bookmarkFilter{withBookmark{}}.Watch(t.Context(), "/events", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	w.Stop() // the second call does nothing
	for range w.ResultChan() {
		// At most the event that was already read; then the channel is closed.
	}
}
