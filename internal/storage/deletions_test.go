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

// countedStore counts the deletions that it gets.
type countedStore struct {
	storage.Interface
	deletions int
}

func (c *countedStore) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	c.deletions++
	return c.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func TestFastPathOfDeletions(t *testing.T) {
	refusal := errors.New("refused")
	for name, test := range map[string]struct {
		before        func(*past)                  // runs after the object was cached
		cached        func(*corev1.Pod)            // changes the cached object
		preconditions func(*storage.Preconditions) // changes the preconditions, which contain the version
		validate      error
		want          func(error) bool
		left          bool // the object still exists
		etcd3         int  // deletions that reach etcd3
	}{
		"current object": {},
		"updated since it was cached": {
			before: func(p *past) { p.update("a", "new") },
			want:   storage.IsInvalidObj, left: true, etcd3: 1,
		},
		"deleted since it was cached": {
			before: func(p *past) { p.delete("a") },
			want:   storage.IsNotFound, etcd3: 1,
		},
		"recreated since it was cached": {
			before: func(p *past) { p.delete("a"); p.create("a", "new") },
			want:   storage.IsInvalidObj, left: true, etcd3: 1,
		},
		"another version is cached": {
			cached: func(pod *corev1.Pod) { pod.ResourceVersion = "1" }, etcd3: 1,
		},
		"another UID": {
			preconditions: func(c *storage.Preconditions) { c.UID = ptr.To(types.UID("other")) },
			want:          storage.IsInvalidObj, left: true, etcd3: 1,
		},
		"no version in the preconditions": {
			preconditions: func(c *storage.Preconditions) { c.ResourceVersion = nil }, etcd3: 1,
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
			etcd3 := &countedStore{Interface: p.pods}
			out := &corev1.Pod{}
			err := deletions{Interface: etcd3, backend: p.backend, resource: pods, prefix: "/pods", root: Prefix + "/"}.Delete(t.Context(), podKey("a"), out, preconditions,
				func(context.Context, runtime.Object) error { return test.validate }, cached, storage.DeleteOptions{})
			if test.want == nil && err != nil || test.want != nil && !test.want(err) {
				t.Errorf("error %v", err)
			}
			if etcd3.deletions != test.etcd3 {
				t.Errorf("%d deletions reached etcd3, want %d", etcd3.deletions, test.etcd3)
			}
			if err == nil && (out.Name != "a" || out.Spec.Containers[0].Image != "old" || out.ResourceVersion == cached.ResourceVersion) {
				t.Errorf("returned %s of version %s as deleted", out.Name, out.ResourceVersion)
			}
			err = p.pods.Get(t.Context(), podKey("a"), storage.GetOptions{}, &corev1.Pod{})
			if left := err == nil; left != test.left {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestFastPathRecords: the fast path writes the record in the same transaction.
func TestFastPathRecords(t *testing.T) {
	p := newPast(t, Encryption{})
	p.create("a", "old")
	cached := &corev1.Pod{}
	if err := p.pods.Get(t.Context(), podKey("a"), storage.GetOptions{}, cached); err != nil {
		t.Fatal(err)
	}
	etcd3 := &countedStore{Interface: p.pods}
	pods := deletions{Interface: etcd3, backend: p.backend, resource: pods, recorded: true, prefix: "/pods", root: Prefix + "/"}
	err := pods.Delete(forAlice(t.Context()), podKey("a"), &corev1.Pod{}, &storage.Preconditions{ResourceVersion: &cached.ResourceVersion},
		storage.ValidateAllObjectFunc, cached, storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	records := p.records("a")
	if len(records) != 1 || records[0].By != alice || records[0].Policy != metav1.DeletePropagationBackground || etcd3.deletions != 0 {
		t.Errorf("recorded %v, and %d deletions reached etcd3", records, etcd3.deletions)
	}
}
