// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const patience = 10 * time.Second

func pod(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}}
}

func configMap(name, version, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", ResourceVersion: version},
		Data:       map[string]string{"k": value},
	}
}

// newStore returns a store and the pods that it notifies.
func newStore(t *testing.T, client *fake.Clientset) (*Store, chan types.UID) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	changed := make(chan types.UID, 100)
	return New(ctx, client, func(uid types.UID) { changed <- uid }), changed
}

func expect(t *testing.T, changed chan types.UID, want types.UID) {
	t.Helper()
	select {
	case got := <-changed:
		if got != want {
			t.Fatalf("changed(%s), want %s", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no changed(%s)", want)
	}
}

func TestMissingObjectHasUpstreamMessage(t *testing.T) {
	store, _ := newStore(t, fake.NewClientset())
	_, err := store.ConfigMap(context.Background(), pod("a"), "gone")
	if !apierrors.IsNotFound(err) || err.Error() != `configmap "gone" not found` {
		t.Errorf("got %v", err)
	}
	_, err = store.Secret(context.Background(), pod("a"), "gone")
	if !apierrors.IsNotFound(err) || err.Error() != `secret "gone" not found` {
		t.Errorf("got %v", err)
	}
}

func TestRefusalHasServerMessage(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("*", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no way")
	})
	store, _ := newStore(t, client)
	if _, err := store.Secret(context.Background(), pod("a"), "s"); err == nil || err.Error() != "no way" {
		t.Errorf("got %v", err)
	}
}

func TestChangesNotifyPodsThatRead(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset(configMap("c", "1", "old"))
	events := watched(client)
	store, changed := newStore(t, client)
	if _, err := store.ConfigMap(ctx, pod("a"), "c"); err != nil {
		t.Fatal(err)
	}

	events.Modify(configMap("c", "2", "new"))
	expect(t, changed, "a")
	got, err := store.ConfigMap(ctx, pod("a"), "c")
	if err != nil || got.Data["k"] != "new" {
		t.Fatalf("got %v, %v", got, err)
	}

	events.Delete(configMap("c", "3", "new"))
	expect(t, changed, "a")
	if _, err := store.ConfigMap(ctx, pod("a"), "c"); !apierrors.IsNotFound(err) {
		t.Fatalf("after deletion: %v", err)
	}
}

func TestCreationNotifiesPodThatMissedObject(t *testing.T) {
	client := fake.NewClientset()
	events := watched(client)
	store, changed := newStore(t, client)
	_, _ = store.ConfigMap(context.Background(), pod("a"), "c")
	events.Add(configMap("c", "1", "x"))
	expect(t, changed, "a")
}

func TestReleaseOfLastPodStopsWatch(t *testing.T) {
	ctx := context.Background()
	store, _ := newStore(t, fake.NewClientset(configMap("c", "1", "x")))
	for _, uid := range []types.UID{"a", "b"} {
		if _, err := store.ConfigMap(ctx, pod(uid), "c"); err != nil {
			t.Fatal(err)
		}
	}
	store.Release("a")
	if len(store.entries) != 1 {
		t.Errorf("b still refers to the object, but there are %d entries", len(store.entries))
	}
	store.Release("b")
	if len(store.entries) != 0 {
		t.Errorf("%d entries left", len(store.entries))
	}
}

func TestImmutableIsNotWatched(t *testing.T) {
	ctx := context.Background()
	fixed := configMap("c", "1", "x")
	fixed.Immutable = new(true)
	client := fake.NewClientset(fixed)
	store, changed := newStore(t, client)
	if _, err := store.ConfigMap(ctx, pod("a"), "c"); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	if _, err := store.ConfigMap(ctx, pod("b"), "c"); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() == "get" {
			t.Error("an immutable object was read twice")
		}
	}
	if len(changed) != 0 {
		t.Error("pods were notified of an unchanged object")
	}
}

func TestLaggingWatchDoesNotRevert(t *testing.T) {
	announced := 0
	e := newEntry(func() { announced++ })
	e.stop = func() {}
	e.fetched(configMap("c", "7", "new"))
	e.set(configMap("c", "5", "old"))
	if got, _ := e.get(); got.GetResourceVersion() != "7" {
		t.Errorf("reverted to version %s", got.GetResourceVersion())
	}
	if announced != 0 {
		t.Error("pods were notified of an old version")
	}
}

// watched makes the fake API server send these events to the first watch. The fake's own watches
// lose events between a list and its watch.
func watched(client *fake.Clientset) *watch.RaceFreeFakeWatcher {
	events := watch.NewRaceFreeFake()
	client.PrependWatchReactor("configmaps", clienttesting.DefaultWatchReactor(events, nil))
	return events
}
