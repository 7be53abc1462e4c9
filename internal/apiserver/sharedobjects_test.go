// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestSharedObjects: an informer of the process has the data of the watch cache, not a copy, and
// without managed fields, which clients still get.
func TestSharedObjects(t *testing.T) {
	// A policy of another test may have started and stopped the informer of the shared server.
	server := own(t, func(*Config) {})
	namespace, client := server.namespace(t), server.client(t)
	maps := client.CoreV1().ConfigMaps(namespace)
	informer := server.Informers().Core().V1().ConfigMaps().Informer()
	server.StartInformers()
	if _, err := maps.Create(t.Context(), configMap("a", map[string]string{"k": "1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := informed(t, informer, namespace+"/a", "1")
	expectShared(t, server, first)

	// The informer's older object stays as it was when the cache gets a newer one.
	if _, err := maps.Update(t.Context(), configMap("a", map[string]string{"k": "2"}), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := informed(t, informer, namespace+"/a", "2")
	expectShared(t, server, second)
	if first.Data["k"] != "1" || first.ResourceVersion == second.ResourceVersion {
		t.Errorf("the first version became %+v", first)
	}
	got, err := maps.Get(t.Context(), "a", metav1.GetOptions{ResourceVersion: "0"})
	if err != nil || len(got.ManagedFields) == 0 || got.Data["k"] != "2" {
		t.Errorf("a client gets %+v, %v", got, err)
	}

	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err = within(10*time.Second, func() error { // the cache follows the deletion
		if server.shared.cached(second) != nil {
			return errors.New("a deleted object is still shared")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// A namesake is another object.
	if _, err := maps.Create(t.Context(), configMap("a", map[string]string{"k": "3"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectShared(t, server, informed(t, informer, namespace+"/a", "3"))
	if server.shared.cached(second) != nil {
		t.Error("shared with a namesake")
	}
}

// TestUnsharedObjects: what is not in a watch cache, or is changed for responses, is not shared.
func TestUnsharedObjects(t *testing.T) {
	for _, o := range []object{
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", ResourceVersion: "1"}},
		&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}},
	} {
		if got := server.shared.cached(o); got != nil {
			t.Errorf("%T: shared with %+v", o, got)
		}
	}
	for of, store := range server.shared.stores {
		if store.Decorator != nil {
			t.Errorf("%v is shared, although a decorator changes it", of)
		}
	}
	gone := cache.DeletedFinalStateUnknown{Key: "a"}
	if got, err := server.shared.transform(gone); err != nil || got != gone {
		t.Errorf("%+v became %+v, %v", gone, got, err)
	}
}

// informed waits until an informer has a ConfigMap with a value of k.
func informed(t *testing.T, informer cache.SharedIndexInformer, key, value string) (found *corev1.ConfigMap) {
	t.Helper()
	err := within(10*time.Second, func() error {
		o, exists, err := informer.GetStore().GetByKey(key)
		if err != nil || !exists {
			return fmt.Errorf("no %s (%v)", key, err)
		}
		if found = o.(*corev1.ConfigMap); found.Data["k"] != value {
			return fmt.Errorf("its value is %q", found.Data["k"])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expectShared(t *testing.T, server *testServer, o *corev1.ConfigMap) {
	t.Helper()
	same, ok := server.shared.cached(o).(*corev1.ConfigMap)
	if !ok || reflect.ValueOf(same.Data).Pointer() != reflect.ValueOf(o.Data).Pointer() {
		t.Errorf("%s has data of its own", o.Name)
	}
	if o.ManagedFields != nil {
		t.Errorf("%s has managed fields", o.Name)
	}
}
