// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects caches the ConfigMaps and Secrets that the pods of one node refer to.
//
// The node authorizer lets a node read only the objects that its pods refer to. Therefore no informer
// watches all of them: each object has a watch of its own, with a field selector on its name. The
// watch starts when the first pod reads the object and stops when the last of its pods is released.
// An immutable object is read once and no longer watched.
//
// A reader never waits for a watch. Until the watch has synced, the object is read with a GET, whose
// error has the API server's message.
package objects

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
)

// Store caches the objects that the pods of one node refer to.
type Store struct {
	ctx     context.Context
	client  kubernetes.Interface
	changed func(types.UID)

	mu      sync.Mutex
	entries map[key]*entry
}

type key struct {
	kind      kind
	namespace string
	name      string
}

// New returns an empty Store, whose watches stop when ctx ends. When an object that a pod has read
// changes, changed is called for each pod that refers to it. It is called without locks held, and
// must not block.
func New(ctx context.Context, client kubernetes.Interface, changed func(pod types.UID)) *Store {
	return &Store{ctx: ctx, client: client, changed: changed, entries: map[key]*entry{}}
}

// ConfigMap returns a ConfigMap in the pod's namespace, and watches it for the pod until Release. The
// caller must not modify it. If it does not exist, the error is NotFound and reads
// `configmap "name" not found`.
func (s *Store) ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	object, err := s.get(ctx, pod, configMaps, name)
	if err != nil {
		return nil, err
	}
	return object.(*v1.ConfigMap), nil
}

// Secret is ConfigMap for Secrets.
func (s *Store) Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	object, err := s.get(ctx, pod, secrets, name)
	if err != nil {
		return nil, err
	}
	return object.(*v1.Secret), nil
}

// Release drops all references of the pod, and stops the watches that no other pod needs.
func (s *Store) Release(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.entries {
		e.pods.Delete(pod)
		if e.pods.Len() == 0 {
			e.stop()
			delete(s.entries, k)
		}
	}
}

func (s *Store) get(ctx context.Context, pod *v1.Pod, kind kind, name string) (object, error) {
	k := key{kind: kind, namespace: pod.Namespace, name: name}
	e := s.refer(k, pod.UID)

	cached, synced := e.get()
	if !synced {
		fetched, err := kind.get(ctx, s.client, k.namespace, k.name)
		switch {
		case apierrors.IsNotFound(err):
			fetched = nil
		case err != nil:
			return nil, err
		}
		cached = e.fetched(fetched)
	}
	if cached == nil {
		return nil, apierrors.NewNotFound(v1.Resource(string(kind)), name)
	}
	return cached, nil
}

// refer records that the pod refers to the object, and starts the watch if there is none.
func (s *Store) refer(k key, pod types.UID) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		e = newEntry(func() { s.notify(k) })
		s.entries[k] = e
		e.watch(s.ctx, s.client, k)
	}
	e.pods.Insert(pod)
	return e
}

func (s *Store) notify(k key) {
	s.mu.Lock()
	var pods sets.Set[types.UID]
	if e := s.entries[k]; e != nil {
		pods = e.pods.Clone()
	}
	s.mu.Unlock()
	for pod := range pods {
		s.changed(pod)
	}
}
