// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// same reports whether both values are the same map.
func same(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// TestSharedVersions: a version has the parts of the version before that have not changed, and parts of its own where it differs. A new object has
// those of the one before it.
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
	}
	if same(part(first, "metadata"), part(other, "metadata")) || part(first, "metadata", "name") != "one" || part(other, "metadata", "name") != "two" {
		t.Errorf("metadata of two objects: %v, %v", part(first, "metadata"), part(other, "metadata"))
	}
	for _, path := range [][]string{{"metadata", "labels"}, {"spec"}, {"status"}} {
		if !same(part(first, path...), part(other, path...)) {
			t.Errorf("the second object has %v of its own", path)
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
	v.add(watch.Event{Type: watch.Error, Object: &metav1.Status{}})
}

// TestShareTyped: a version of a Pod whose status changes has the other parts of the version before.
func TestShareTyped(t *testing.T) {
	before := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "one", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}, {Manager: "two", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{}}`)}},
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}},
	}
	now := before.DeepCopy()
	now.ResourceVersion, now.Status.Phase = "2", corev1.PodRunning
	now.ManagedFields[1].FieldsV1.Raw = []byte(`{"f:status":{"f:phase":{}}}`)
	want := now.DeepCopy()
	shareObject(now, before)
	if diff := cmp.Diff(want, now); diff != "" {
		t.Errorf("the version has changed:\n%s", diff)
	}
	if !same(now.Labels, before.Labels) || &now.Spec.Containers[0] != &before.Spec.Containers[0] || now.ManagedFields[0].FieldsV1 != before.ManagedFields[0].FieldsV1 {
		t.Error("the version has labels, containers or managed fields of its own, and they are equal")
	}
	if now.ManagedFields[1].FieldsV1 == before.ManagedFields[1].FieldsV1 {
		t.Error("the versions share managed fields that differ")
	}
}

// TestShareRandom compares random objects with what they are after they share parts, and the earlier version with what it was.
func TestShareRandom(t *testing.T) {
	for _, kind := range []string{"Pod", "Node", "ConfigMap", "Secret", "Service", "Event"} {
		for seed := range int64(200) {
			filler := randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).Funcs(
				func(q *resource.Quantity, c randfill.Continue) {
					*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
				},
				func(f *metav1.Time, c randfill.Continue) { f.Time = time.Unix(c.Int63n(1e9), 0) },
			)
			before, err := scheme.Scheme.New(corev1.SchemeGroupVersion.WithKind(kind))
			if err != nil {
				t.Fatal(err)
			}
			filler.Fill(before)
			now := before.DeepCopyObject()
			// Another object's parts at random places.
			other := before.DeepCopyObject()
			filler.Fill(other)
			mix(rand.New(rand.NewPCG(uint64(seed), 0)), reflect.ValueOf(now).Elem(), reflect.ValueOf(other).Elem())
			wantNow, wantBefore := now.DeepCopyObject(), before.DeepCopyObject()
			shareObject(now, before)
			if !reflect.DeepEqual(wantNow, now) {
				t.Fatalf("%s, seed %d: the object has changed:\n%s", kind, seed, cmp.Diff(wantNow, now))
			}
			if !reflect.DeepEqual(wantBefore, before) {
				t.Fatalf("%s, seed %d: the version before has changed:\n%s", kind, seed, cmp.Diff(wantBefore, before))
			}
		}
	}
}

// mix replaces fields of a struct by those of another one, at random.
func mix(r *rand.Rand, into, from reflect.Value) {
	for i := range into.NumField() {
		field := into.Field(i)
		switch {
		case !field.CanSet():
		case r.IntN(8) == 0:
			field.Set(from.Field(i))
		case field.Kind() == reflect.Struct:
			mix(r, field, from.Field(i))
		}
	}
}

// TestShareJSON compares random values with what they are after they share parts, and the earlier value with what it was.
func TestShareJSON(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		before := randomValue(r, 4)
		now := changed(r, before)
		wantNow, wantBefore := runtime.DeepCopyJSONValue(now), runtime.DeepCopyJSONValue(before)
		shared, equal := shareJSON(now, before)
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
