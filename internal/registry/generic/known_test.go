// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverstorage "k8s.io/apiserver/pkg/storage"
)

// lagging is a storage whose cache may be behind: what it has is asked for by version 0.
type lagging struct {
	apiserverstorage.Interface
	stored, cached *corev1.ConfigMap
	reads          int // of the store
}

func (l *lagging) Get(_ context.Context, _ string, options apiserverstorage.GetOptions, out runtime.Object) error {
	object := l.cached
	if options.ResourceVersion == "" {
		l.reads++
		object = l.stored
	}
	if object == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, "a")
	}
	*out.(*corev1.ConfigMap) = *object
	return nil
}

func TestKnownVersionsAreReadFromTheCache(t *testing.T) {
	version := func(version, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Data: map[string]string{"value": value}}
	}
	for name, test := range map[string]struct {
		storage lagging
		named   string // the version that the caller names
		options apiserverstorage.GetOptions
		want    string
		reads   int
	}{
		"the cache has it":            {lagging{stored: version("2", "new"), cached: version("2", "cached")}, "2", apiserverstorage.GetOptions{}, "cached", 0},
		"the cache is behind":         {lagging{stored: version("2", "new"), cached: version("1", "old")}, "2", apiserverstorage.GetOptions{}, "new", 1},
		"the cache is ahead":          {lagging{stored: version("3", "new"), cached: version("3", "new")}, "2", apiserverstorage.GetOptions{}, "new", 1},
		"the cache has none":          {lagging{stored: version("2", "new")}, "2", apiserverstorage.GetOptions{}, "new", 1},
		"no version is named":         {lagging{stored: version("2", "new"), cached: version("2", "cached")}, "", apiserverstorage.GetOptions{}, "new", 1},
		"a version that cannot be":    {lagging{stored: version("2", "new"), cached: version("2", "cached")}, "x", apiserverstorage.GetOptions{}, "new", 1},
		"the read asks for a version": {lagging{stored: version("2", "new"), cached: version("1", "old")}, "2", apiserverstorage.GetOptions{ResourceVersion: "0"}, "old", 0},
	} {
		ctx := t.Context()
		if test.named != "" {
			ctx = context.WithValue(ctx, knownVersion{}, test.named)
		}
		got := &corev1.ConfigMap{}
		if err := (known{&test.storage}).Get(ctx, "a", test.options, got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Data["value"] != test.want || test.storage.reads != test.reads {
			t.Errorf("%s: %q after %d reads of the store, want %q after %d", name, got.Data["value"], test.storage.reads, test.want, test.reads)
		}
		got.Data["value"] = "changed"
		if test.storage.cached != nil && test.options.ResourceVersion == "" && test.storage.cached.Data["value"] == "changed" && test.reads == 0 {
			t.Errorf("%s: the cache's own object is handed out", name)
		}
	}
}
