// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
			return serverInformer{informer, server.StartInformers}
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

// serverInformer is an informer that the server configures, runs and stops.
type serverInformer struct {
	toolscache.SharedIndexInformer
	start func()
}

// SetTransform does nothing: the server's informers drop the managed fields already, as the
// controllers' cache would.
func (serverInformer) SetTransform(toolscache.TransformFunc) error { return nil }

func (i serverInformer) Run(stop <-chan struct{}) {
	i.start()
	<-stop
}

func (i serverInformer) RunWithContext(ctx context.Context) { i.Run(ctx.Done()) }
