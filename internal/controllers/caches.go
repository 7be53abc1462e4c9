// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// NewInformer returns the informer of a kind for the controllers' shared cache.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Caches tracks the resource version that the controllers' shared cache has reached, by
// kind. Asking the cache itself would start an informer; Caches has only the kinds that a
// controller uses.
type Caches struct {
	mu sync.Mutex
	// informers has two informers of a kind that is cached both whole and as metadata.
	informers map[schema.GroupKind][]toolscache.SharedIndexInformer
}

// Watch wraps a NewInformer, for the options of the shared cache, and records the informers
// that it returns.
func (c *Caches) Watch(scheme *runtime.Scheme, newInformer NewInformer) NewInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		informer := newInformer(source, object, resync, indexers)
		// The cache determines the kind in the same way before it creates an informer.
		if kind, err := apiutil.GVKForObject(object, scheme); err == nil {
			c.add(kind.GroupKind(), informer)
		}
		return informer
	}
}

func (c *Caches) add(kind schema.GroupKind, informer toolscache.SharedIndexInformer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.informers == nil {
		c.informers = map[schema.GroupKind][]toolscache.SharedIndexInformer{}
	}
	c.informers[kind] = append(c.informers[kind], informer)
}

// Seen reports whether the cache has a kind up to a resource version. If the kind is not
// cached, no controller depends on it: seen is true and known is false.
func (c *Caches) Seen(kind schema.GroupKind, resourceVersion string) (seen, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, informer := range c.informers[kind] {
		if !owned.Reached(informer.GetIndexer().LastStoreSyncResourceVersion(), resourceVersion) {
			return false, true
		}
	}
	return true, len(c.informers[kind]) > 0
}
