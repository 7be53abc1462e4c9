// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedVersions lets the versions of an object share what they have in common, and an object that is created what it has in common with the
// one created before it.
//
// A watch cache keeps the versions of at least the last 75 seconds, each of them decoded from the store. A Pod takes some 6 kB. A version
// of a custom object is maps of maps: some 50 kB for a Machine of Cluster API, of which more than half are managed fields. Most writes
// change a condition or two, and controllers make several a second of them. The objects that one controller makes differ in little.
//
// Sharing is safe because nothing modifies what a watch cache holds: all its readers have the same object.
type sharedVersions struct {
	// latest are the latest objects of this watch, by namespace and name. The cache holds them as well.
	latest map[[2]string]runtime.Object
	// created is the object that was created last.
	created runtime.Object
}

// add replaces the parts of the event's object that are equal to those of the version before. Nothing else has the object yet.
func (v *sharedVersions) add(e watch.Event) {
	if e.Type == watch.Bookmark {
		return
	}
	object := unwrapped(e.Object)
	accessor, err := meta.Accessor(object)
	if err != nil {
		return // an error of the watch
	}
	key := [2]string{accessor.GetNamespace(), accessor.GetName()}
	before, known := v.latest[key]
	if !known {
		before, v.created = v.created, object
	}
	if before != nil {
		shareObject(object, before)
	}
	if e.Type == watch.Deleted {
		delete(v.latest, key)
		return
	}
	if v.latest == nil {
		v.latest = map[[2]string]runtime.Object{}
	}
	v.latest[key] = object
}

// shareObject lets an object have the parts of another one that are equal.
func shareObject(now, before runtime.Object) {
	if now, ok := now.(*unstructured.Unstructured); ok {
		if before, ok := before.(*unstructured.Unstructured); ok {
			shareMap(now.Object, before.Object)
		}
		return
	}
	own, others := reflect.ValueOf(now), reflect.ValueOf(before)
	if own.Type() == others.Type() {
		shareValue(own.Elem(), others.Elem())
	}
}

// shareValue reports whether two values of a type are equal. If not, it lets the first one have the parts of the second that are. It may
// take equal values for different ones, which then share less.
func shareValue(now, before reflect.Value) bool {
	equal := false
	switch now.Kind() {
	case reflect.Struct:
		return shareStruct(now, before)
	case reflect.Pointer:
		equal = now.Pointer() == before.Pointer() || !now.IsNil() && !before.IsNil() && shareValue(now.Elem(), before.Elem())
	case reflect.Slice:
		equal = now.IsNil() == before.IsNil() && shareElements(now, before)
	case reflect.Map, reflect.Interface:
		equal = now.CanInterface() && reflect.DeepEqual(now.Interface(), before.Interface())
	case reflect.String:
		equal = now.String() == before.String()
	default:
		return now.Comparable() && now.Equal(before) // nothing to share
	}
	if equal && now.CanSet() {
		now.Set(before)
	}
	return equal
}

func shareStruct(now, before reflect.Value) bool {
	equal := true
	for i := range now.NumField() {
		if !shareValue(now.Field(i), before.Field(i)) {
			equal = false
		}
	}
	return equal
}

// shareElements is shareValue for slices, whose elements are compared one by one.
func shareElements(now, before reflect.Value) bool {
	if now.Type().Elem().Kind() == reflect.Uint8 {
		return bytes.Equal(now.Bytes(), before.Bytes())
	}
	equal := now.Len() == before.Len()
	for i := range min(now.Len(), before.Len()) {
		if !shareValue(now.Index(i), before.Index(i)) {
			equal = false
		}
	}
	return equal
}

// shareJSON is shareValue for decoded JSON. It returns the value to use: before, if both are equal.
func shareJSON(now, before any) (shared any, equal bool) {
	switch now := now.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok && shareMap(now, before) {
			return before, true
		}
		return now, false
	case []any:
		if before, ok := before.([]any); ok && shareSlice(now, before) {
			return before, true
		}
		return now, false
	case string: // most of what is compared: without a call of the runtime
		if before, ok := before.(string); !ok || now != before {
			return now, false
		}
		return before, true
	}
	switch before.(type) {
	case map[string]any, []any: // not comparable
		return now, false
	}
	if now != before {
		return now, false
	}
	return before, true
}

func shareMap(now, before map[string]any) bool {
	equal := len(now) == len(before)
	for key, value := range before { // before's key: its text is shared as well
		own, found := now[key]
		if !found {
			equal = false
			continue
		}
		if shared, same := shareJSON(own, value); same {
			now[key] = shared
		} else {
			equal = false
		}
	}
	return equal
}

func shareSlice(now, before []any) bool {
	equal := len(now) == len(before)
	for i := range min(len(now), len(before)) {
		if shared, same := shareJSON(now[i], before[i]); same {
			now[i] = shared
		} else {
			equal = false
		}
	}
	return equal
}
