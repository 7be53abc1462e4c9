// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedVersions lets the versions of a custom object share what they have in common.
//
// A watch cache keeps the versions of at least the last 75 seconds, each of them decoded from the store. A version of a custom object is
// maps of maps: some 50 kB for a Machine of Cluster API, of which more than half are managed fields. Most writes change a condition
// or two, and controllers make several a second of them.
//
// Sharing is safe because nothing modifies what a watch cache holds: all its readers have the same object.
type sharedVersions struct {
	// latest are the latest objects of this watch, by namespace and name. The cache holds them as well.
	latest map[[2]string]map[string]any
}

// add replaces the parts of the event's object that are equal to those of the version before. Nothing else has the object yet.
func (v *sharedVersions) add(e watch.Event) {
	object, custom := unwrapped(e.Object).(*unstructured.Unstructured)
	if !custom || e.Type == watch.Bookmark {
		return
	}
	if v.latest == nil {
		v.latest = map[[2]string]map[string]any{}
	}
	key := [2]string{object.GetNamespace(), object.GetName()}
	if before, found := v.latest[key]; found {
		shareMap(object.Object, before)
	}
	if e.Type == watch.Deleted {
		delete(v.latest, key)
		return
	}
	v.latest[key] = object.Object
}

// share returns before if it equals now. If not, it returns now, whose parts are those of before where they are equal. The values are
// those of decoded JSON.
func share(now, before any) (shared any, equal bool) {
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

// shareMap reports whether the maps are equal. If not, it lets the first one have the parts of the second that are.
func shareMap(now, before map[string]any) bool {
	equal := len(now) == len(before)
	for key, value := range before { // before's key: its text is shared as well
		own, found := now[key]
		if !found {
			equal = false
			continue
		}
		if shared, same := share(own, value); same {
			now[key] = shared
		} else {
			equal = false
		}
	}
	return equal
}

// shareSlice is shareMap for slices, whose elements are compared one by one.
func shareSlice(now, before []any) bool {
	equal := len(now) == len(before)
	for i := range min(len(now), len(before)) {
		if shared, same := share(now[i], before[i]); same {
			now[i] = shared
		} else {
			equal = false
		}
	}
	return equal
}
