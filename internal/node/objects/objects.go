// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects gives the pods of one node the ConfigMaps and Secrets they name.
//
// The node may read only what its pods refer to (the node authorizer's rule), so
// there is no informer on all of them but one watch an object, each with a field
// selector on the name. A watch begins when the first pod asks for the object and
// ends when the last pod that asked is released. An object marked immutable is
// read once and not watched at all.
//
// A reader never waits for a watch: until it has caught up, Get asks the API
// server, so that a refusal arrives with the server's own words.
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

// Store holds the objects that the pods of one node refer to.
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

// New returns an empty Store whose watches live until ctx is done. changed is
// called, from a watch and without locks held, for each pod that refers to an
// object when that object changes after a pod has read it; it must not block.
func New(ctx context.Context, client kubernetes.Interface, changed func(pod types.UID)) *Store {
	return &Store{ctx: ctx, client: client, changed: changed, entries: map[key]*entry{}}
}

// ConfigMap returns the ConfigMap in the pod's namespace, and watches it on behalf
// of the pod until Release. The caller must not change it.
// A missing one is an IsNotFound error that reads `configmap "name" not found`.
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

// Release drops all references of the pod, and ends the watches that no other pod needs.
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

	cached, known := e.read()
	if !known {
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

// refer notes that the pod needs the object, and begins to watch it if nobody did.
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
