// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// TestLazyCache: writes and reads of one object open no watch cache. The first lists and watches do, and no client of them is told to try again.
func TestLazyCache(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	pods := newStorage(t, b, "pods", true)
	lazy := pods.(*lazyCache)
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{})

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
	label := storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		existing.(*corev1.Pod).Labels = map[string]string{"written": "before"}
		return existing, nil
	})
	if err := pods.Create(ctx, podKey("a"), pod, &corev1.Pod{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := pods.GuaranteedUpdate(ctx, podKey("a"), &corev1.Pod{}, false, nil, label, nil); err != nil {
		t.Fatal(err)
	}
	if err := pods.Get(ctx, podKey("a"), storage.GetOptions{}, &corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if stats, err := pods.Stats(ctx); err != nil || stats.ObjectCount != 1 {
		t.Errorf("the count is %d, %v, want 1", stats.ObjectCount, err)
	}
	if err := pods.ReadinessCheck(); err != nil {
		t.Errorf("a store without a cache is not ready: %v", err)
	}
	if lazy.cached != nil {
		t.Fatal("the watch cache was opened by a request that does not need it")
	}

	var clients errgroup.Group
	for i := range 16 {
		opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
		if i%2 == 0 {
			clients.Go(func() error {
				w, err := pods.Watch(ctx, "/pods", opts)
				if err != nil {
					return err
				}
				defer w.Stop()
				return readAll(w, 1)
			})
			continue
		}
		clients.Go(func() error { return pods.GetList(ctx, "/pods", opts, &corev1.PodList{}) })
	}
	if err := clients.Wait(); err != nil {
		t.Fatal(err)
	}
	if lazy.cached == nil {
		t.Error("a list and a watch opened no cache")
	}
	if err := pods.Delete(ctx, podKey("a"), &corev1.Pod{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestLazyCacheDestroyed: a storage that is destroyed opens no cache, which nothing would end.
func TestLazyCacheDestroyed(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	lazy := newStorage(t, b, "pods", true).(*lazyCache)
	lazy.destroy()
	if err := lazy.GetList(t.Context(), "/pods", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &corev1.PodList{}); err != nil {
		t.Error(err)
	}
	if lazy.cached != nil {
		t.Error("the cache of a destroyed storage was opened")
	}
}
