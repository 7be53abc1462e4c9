// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// counting counts the deletions that are left to the library.
type counting struct {
	storage.Interface
	deletions int
}

func (c *counting) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	c.deletions++
	return c.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func TestExactDeletions(t *testing.T) {
	refusal := errors.New("refused")
	for name, test := range map[string]struct {
		before        func(*past)                  // after the cache has seen the object
		cached        func(*corev1.Pod)            // what else it has
		preconditions func(*storage.Preconditions) // that name the version
		validate      error
		want          func(error) bool
		left          bool // the object is still there
		library       int  // deletions that are left to it
	}{
		"the version that the cache has": {},
		"it was changed since": {
			before: func(p *past) { p.update("a", "new") },
			want:   storage.IsInvalidObj, left: true, library: 1,
		},
		"it went since": {
			before: func(p *past) { p.delete("a") },
			want:   storage.IsNotFound, library: 1,
		},
		"it went and came back": {
			before: func(p *past) { p.delete("a"); p.create("a", "new") },
			want:   storage.IsInvalidObj, left: true, library: 1,
		},
		"the cache has another version": {
			cached: func(pod *corev1.Pod) { pod.ResourceVersion = "1" }, library: 1,
		},
		"another UID": {
			preconditions: func(c *storage.Preconditions) { c.UID = ptr.To(types.UID("other")) },
			want:          storage.IsInvalidObj, left: true, library: 1,
		},
		"no version is named": {
			preconditions: func(c *storage.Preconditions) { c.ResourceVersion = nil }, library: 1,
		},
		"admission refuses": {
			validate: refusal,
			want:     func(err error) bool { return errors.Is(err, refusal) }, left: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t, Encryption{})
			p.create("a", "old")
			cached := &corev1.Pod{}
			if err := p.pods.Get(t.Context(), podKey("a"), storage.GetOptions{}, cached); err != nil {
				t.Fatal(err)
			}
			preconditions := &storage.Preconditions{ResourceVersion: ptr.To(cached.ResourceVersion)}
			if test.preconditions != nil {
				test.preconditions(preconditions)
			}
			if test.cached != nil {
				test.cached(cached)
			}
			if test.before != nil {
				test.before(p)
			}
			library := &counting{Interface: p.pods}
			out := &corev1.Pod{}
			err := exact{library, p.backend, pods, "/pods", Prefix + "/"}.Delete(t.Context(), podKey("a"), out, preconditions,
				func(context.Context, runtime.Object) error { return test.validate }, cached, storage.DeleteOptions{})
			if test.want == nil && err != nil || test.want != nil && !test.want(err) {
				t.Errorf("answered %v", err)
			}
			if library.deletions != test.library {
				t.Errorf("%d deletions were left to the library, want %d", library.deletions, test.library)
			}
			if err == nil && (out.Name != "a" || out.Spec.Containers[0].Image != "old" || out.ResourceVersion == cached.ResourceVersion) {
				t.Errorf("told that %s of version %s went", out.Name, out.ResourceVersion)
			}
			err = p.pods.Get(t.Context(), podKey("a"), storage.GetOptions{}, &corev1.Pod{})
			if left := err == nil; left != test.left {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestExactDeletionsAreRecorded: the record of who asked is in the same transaction.
func TestExactDeletionsAreRecorded(t *testing.T) {
	p := newPast(t, Encryption{})
	p.create("a", "old")
	cached := &corev1.Pod{}
	if err := p.pods.Get(t.Context(), podKey("a"), storage.GetOptions{}, cached); err != nil {
		t.Fatal(err)
	}
	library := &counting{Interface: p.pods}
	pods := recorded{exact{library, p.backend, pods, "/pods", Prefix + "/"}, p.backend, pods}
	err := pods.Delete(forAlice(t.Context()), podKey("a"), &corev1.Pod{}, &storage.Preconditions{ResourceVersion: &cached.ResourceVersion},
		storage.ValidateAllObjectFunc, cached, storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	records := p.records("a")
	if len(records) != 1 || records[0].By != alice || records[0].Policy != metav1.DeletePropagationBackground || library.deletions != 0 {
		t.Errorf("recorded %v with %d deletions left to the library", records, library.deletions)
	}
}
