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

// NewInformer makes the informer of one kind for the controllers' shared cache.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Caches knows how far the controllers' shared cache has come, kind by kind. The cache itself
// would begin to keep a kind that it is asked about; Caches knows those alone that some
// controller asked for.
type Caches struct {
	mu sync.Mutex
	// informers has more than one of a kind that is kept whole and as metadata alone.
	informers map[schema.GroupKind][]toolscache.SharedIndexInformer
}

// Watch returns a NewInformer, for the options of the shared cache, whose informers are made
// by another one and then known to the Caches.
func (c *Caches) Watch(scheme *runtime.Scheme, made NewInformer) NewInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		informer := made(source, object, resync, indexers)
		// The cache has told the kind in the same manner before it asks for an informer.
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

// Seen tells whether controllers see what was written of a kind up to a resource version.
// Known is false of a kind that is not in the shared cache: no controller waits for it, so
// that it counts as seen.
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
