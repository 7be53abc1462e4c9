// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// same reports whether both values are the same map.
func same(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// TestSharedVersions: a version has the parts of the version before that have not changed, and parts of its own where it differs.
func TestSharedVersions(t *testing.T) {
	object := func(name string, fields map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": name, "labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"list": []any{map[string]any{"a": int64(1)}, map[string]any{"b": true}}},
			"status":   fields,
		}}
	}
	part := func(o *unstructured.Unstructured, path ...string) any {
		found, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	var v sharedVersions
	first, second := object("one", map[string]any{"ready": false}), object("one", map[string]any{"ready": true})
	other, again := object("two", map[string]any{"ready": false}), object("one", map[string]any{"ready": true})
	for _, e := range []watch.Event{
		{Type: watch.Added, Object: first}, {Type: watch.Added, Object: other}, {Type: watch.Bookmark, Object: object("", nil)},
		{Type: watch.Modified, Object: second}, {Type: watch.Deleted, Object: again},
	} {
		v.add(e)
	}
	for _, path := range [][]string{{"metadata"}, {"metadata", "labels"}, {"spec"}, {"spec", "list"}} {
		if !same(part(first, path...), part(second, path...)) {
			t.Errorf("the second version has %v of its own", path)
		}
		if same(part(first, path...), part(other, path...)) {
			t.Errorf("two objects share %v", path)
		}
	}
	if same(part(first, "status"), part(second, "status")) || part(first, "status", "ready") != false || part(second, "status", "ready") != true {
		t.Errorf("status of the versions: %v, %v", part(first, "status"), part(second, "status"))
	}
	if !same(part(second, "status"), part(again, "status")) {
		t.Error("the deleted object has a status of its own")
	}
	if len(v.latest) != 1 {
		t.Errorf("%d objects are kept after one of two was deleted", len(v.latest))
	}
	v.add(watch.Event{Type: watch.Added, Object: &runtime.Unknown{}}) // of another kind
}

// TestShare compares random values with what they are after they share parts, and the earlier value with what it was.
func TestShare(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		before := randomValue(r, 4)
		now := changed(r, before)
		wantNow, wantBefore := runtime.DeepCopyJSONValue(now), runtime.DeepCopyJSONValue(before)
		shared, equal := share(now, before)
		if diff := cmp.Diff(wantNow, shared); diff != "" {
			t.Fatalf("seed %d: the value has changed:\n%s", seed, diff)
		}
		if diff := cmp.Diff(wantBefore, before); diff != "" {
			t.Fatalf("seed %d: the earlier value has changed:\n%s", seed, diff)
		}
		if want := reflect.DeepEqual(wantNow, wantBefore); equal != want {
			t.Fatalf("seed %d: equal: %v, want %v\n%v\n%v", seed, equal, want, wantNow, wantBefore)
		}
	}
}

// randomValue returns a value of decoded JSON.
func randomValue(r *rand.Rand, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return r.Int64N(3)
	case 1:
		return float64(r.IntN(3)) / 2
	case 2:
		return r.IntN(2) == 0
	case 3:
		return nil
	case 4:
		return fmt.Sprint(r.IntN(3))
	case 5:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(5) {
		object[fmt.Sprint(r.IntN(6))] = randomValue(r, depth-1)
	}
	return object
}

// changed returns a copy of a value, with changes at random places.
func changed(r *rand.Rand, value any) any {
	if r.IntN(12) == 0 {
		return randomValue(r, 2)
	}
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for key, part := range value {
			if r.IntN(12) > 0 {
				object[key] = changed(r, part)
			}
		}
		return object
	case []any:
		list := []any{}
		for _, part := range value {
			list = append(list, changed(r, part))
		}
		return list[:len(list)-min(len(list), r.IntN(12)/11)]
	}
	return value
}
