// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// TestProgressReachesOwnStreamOnly: etcd answers a request for progress to the caches of the resource, and to no other watch.
func TestProgressReachesOwnStreamOnly(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	t.Cleanup(b.Close)
	etcd := newStorage(t, b, "events", false) // without a watch cache
	stores := map[string]storage.Interface{"asking": ownStream{etcd, "events"}, "other cache": ownStream{etcd, "pods"}, "without a cache": etcd}
	watches := map[string]watch.Interface{}
	for name, s := range stores {
		w, err := s.Watch(t.Context(), "/events", storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[name] = w
	}
	// etcd takes the request once the watch is open.
	const attempts = 100
	for attempt := 1; ; attempt++ {
		if err := stores["asking"].RequestWatchProgress(t.Context()); err != nil && attempt == attempts {
			t.Fatal(err)
		}
		select {
		case e := <-watches["asking"].ResultChan():
			if e.Type != watch.Bookmark {
				t.Fatalf("the event is %s, want a bookmark", e.Type)
			}
		case <-time.After(50 * time.Millisecond):
			if attempt == attempts {
				t.Fatal("no bookmark follows a request for progress")
			}
			continue
		}
		break
	}
	for _, name := range []string{"other cache", "without a cache"} {
		select {
		case e := <-watches[name].ResultChan():
			t.Errorf("%s: the watch has got a %s", name, e.Type)
		default:
		}
	}
}
