// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
)

// podStorage returns the storage of pods, with all layers and a filled watch cache.
func podStorage(t *testing.T, b *Backend) storage.Interface {
	t.Helper()
	store := newPodStorage(t, b)
	for store.ReadinessCheck() != nil {
		time.Sleep(time.Millisecond)
	}
	return store
}

// newPodStorage returns the storage of pods, with a watch cache that has just begun to fill.
func newPodStorage(t *testing.T, b *Backend) storage.Interface {
	t.Helper()
	return newStorage(t, b, "pods", false)
}

// newStorage returns the storage of a resource whose objects are pods.
func newStorage(t *testing.T, b *Backend, resource string, lazy bool) storage.Interface {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := scheme.Codecs.CodecForVersions(info.Serializer, info.Serializer, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config := storagebackend.NewDefaultConfig(Prefix, codec)
	store, destroy, err := b.decorator(lazy)(config.ForResource(schema.GroupResource{Resource: resource}), "/"+resource,
		func(obj runtime.Object) (string, error) { return podKey(obj.(*corev1.Pod).Name), nil },
		func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} },
		storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return store
}

func podKey(name string) string { return "/pods/default/" + name }

// TestBurstEndsNoWatch: a burst of writes ends no watch, however many watches there are and however
// slow they are. Each watch gets every event, in order.
func TestBurstEndsNoWatch(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	defer b.Close()
	pods := podStorage(t, b)
	const watches, writers, each = 30, 16, 100
	all := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	var readers errgroup.Group
	for i := range watches {
		// Half of the watches select a namespace, as users' do.
		events, err := pods.Watch(t.Context(), []string{"/pods", "/pods/default/"}[i%2], all)
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		readers.Go(func() error { return readAll(events, writers*each) })
	}
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			for i := range each {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d-%d", w, i), Namespace: "default"}}
				if err := pods.Create(t.Context(), podKey(pod.Name), pod, nil, 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
}

// readAll reads a watch until it has seen a number of created objects.
func readAll(events watch.Interface, want int) error {
	var last uint64
	for n := 0; n < want; n++ {
		e, ok := <-events.ResultChan()
		if !ok {
			return fmt.Errorf("a watch ended after %d of %d events", n, want)
		}
		version := versionOf(storage.APIObjectVersioner{}, e)
		if e.Type != watch.Added || version <= last {
			return fmt.Errorf("event %d is %s of version %d, after version %d", n, e.Type, version, last)
		}
		last = version
	}
	return nil
}
