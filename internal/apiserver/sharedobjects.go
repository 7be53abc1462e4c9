// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/storage"
)

// sharedObjects lets the informers of the process share the objects of the watch caches. An informer
// decodes each object that it receives, although the watch cache that sent it has already decoded it.
// The informer replaces its object by a shallow copy of the watch cache's, so that both point to the
// same labels, spec and data.
//
// Therefore nobody may modify an object of an informer: that would modify what the API serves.
type sharedObjects struct {
	mu     sync.RWMutex
	stores map[reflect.Type]*generic.Store
}

// object is an object of the API.
type object interface {
	metav1.Object
	runtime.Object
}

// add adds the stores of built-in resources. Until then informers keep what they decode.
func (s *sharedObjects) add(built generic.Built) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = map[reflect.Type]*generic.Store{}
	for _, endpoints := range built {
		for _, endpoint := range endpoints {
			// A decorator changes an object after it was read from the cache, for each response.
			if store, ok := endpoint.(*generic.Store); ok && store.Decorator == nil && storage.IsCached(store.DefaultQualifiedResource) {
				s.stores[reflect.TypeOf(store.New())] = store
			}
		}
	}
}

// transform is the informers' function that changes an object before it is kept. It drops managed
// fields, which no part reads.
func (s *sharedObjects) transform(of any) (any, error) {
	o, ok := of.(object)
	if !ok {
		return of, nil
	}
	if same := s.cached(o); same != nil {
		o = same
	}
	o.SetManagedFields(nil)
	return o, nil
}

// cached returns the object as the watch cache has it, or nil if it has no or another version of it.
func (s *sharedObjects) cached(o object) object {
	s.mu.RLock()
	store := s.stores[reflect.TypeOf(o)]
	s.mu.RUnlock()
	if store == nil || o.GetResourceVersion() == "" {
		return nil
	}
	ctx := context.Background()
	if store.CreateStrategy.NamespaceScoped() {
		ctx = request.WithNamespace(ctx, o.GetNamespace())
	}
	key, err := store.KeyFunc(ctx, o.GetName())
	if err != nil {
		return nil
	}
	same := store.New().(object)
	err = store.Storage.Storage.Get(ctx, key, apistorage.GetOptions{ResourceVersion: o.GetResourceVersion()}, same)
	if err != nil || same.GetResourceVersion() != o.GetResourceVersion() || same.GetUID() != o.GetUID() {
		return nil
	}
	return same
}
