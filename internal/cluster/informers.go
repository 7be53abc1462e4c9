// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kindred-project/kindred/internal/apiserver"
)

// newInformer makes the controllers' cache use the server's informers: the process receives,
// decodes and stores each object once. Controllers get copies unless they ask for none, as from
// any cache. Kinds that the server's factory does not have, metadata alone and kinds that are not
// built in, get informers of their own.
func newInformer(server *apiserver.Server) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if informer := informerOf(server, object); informer != nil {
			return &serverInformer{SharedIndexInformer: informer, start: server.StartInformers, indexed: sets.New[string]()}
		}
		return toolscache.NewSharedIndexInformer(source, object, resync, indexers)
	}
}

// informerOf returns the server's informer of a built-in kind; nil for other kinds.
func informerOf(server *apiserver.Server, object runtime.Object) toolscache.SharedIndexInformer {
	gvks, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return nil
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvks[0])
	informer, err := server.Informers().ForResource(resource)
	if err != nil {
		return nil
	}
	return informer.Informer()
}

// serverInformer is an informer that the server configures, runs and stops. It outlives the controllers' cache, and removes the
// cache's handlers when that stops.
type serverInformer struct {
	toolscache.SharedIndexInformer
	start func()

	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandlerRegistration
	indexed  sets.Set[string]
}

// SetTransform does nothing: the server's informers drop the managed fields already, as the
// controllers' cache would.
func (*serverInformer) SetTransform(toolscache.TransformFunc) error { return nil }

// AddEventHandler implements toolscache.SharedInformer.
func (i *serverInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandler(handler))
}

// AddEventHandlerWithResyncPeriod implements toolscache.SharedInformer.
func (i *serverInformer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync))
}

// AddEventHandlerWithOptions implements toolscache.SharedInformer.
func (i *serverInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options))
}

func (i *serverInformer) added(handler toolscache.ResourceEventHandlerRegistration, err error) (toolscache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handlers = append(i.handlers, handler)
	}
	return handler, err
}

// AddIndexers implements toolscache.SharedIndexInformer. It keeps the indices that the controllers of an earlier term have added:
// theirs are the same.
func (i *serverInformer) AddIndexers(indexers toolscache.Indexers) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	missing, present := toolscache.Indexers{}, i.GetIndexer().GetIndexers()
	for name, index := range indexers {
		if _, ok := present[name]; !ok || i.indexed.Has(name) {
			missing[name] = index
		}
		i.indexed.Insert(name)
	}
	return i.SharedIndexInformer.AddIndexers(missing)
}

func (i *serverInformer) Run(stop <-chan struct{}) {
	i.start()
	<-stop
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, handler := range i.handlers {
		_ = i.RemoveEventHandler(handler) // an informer that has stopped has none
	}
}

func (i *serverInformer) RunWithContext(ctx context.Context) { i.Run(ctx.Done()) }
