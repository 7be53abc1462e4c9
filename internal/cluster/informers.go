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

// newInformer lets the controllers' cache read the server's own informers: each
// object is received, decoded and kept once for all parts of the process.
// Controllers get copies, as from any cache. Only what the server's factory cannot
// have, metadata alone or kinds that are not built in, is watched apart.
func newInformer(server *apiserver.Server) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if informer := shared(server, object); informer != nil {
			return borrowed{informer, server.StartInformers}
		}
		return toolscache.NewSharedIndexInformer(source, object, resync, indexers)
	}
}

// shared is the server's informer of a built-in kind; nil if the object is of another.
func shared(server *apiserver.Server, object runtime.Object) toolscache.SharedIndexInformer {
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

// borrowed is an informer that the server sets up, runs and stops.
type borrowed struct {
	toolscache.SharedIndexInformer
	start func()
}

// SetTransform does nothing: the server's informers drop the same as the
// controllers' cache would, the managed fields.
func (borrowed) SetTransform(toolscache.TransformFunc) error { return nil }

func (b borrowed) Run(stop <-chan struct{}) {
	b.start()
	<-stop
}

func (b borrowed) RunWithContext(ctx context.Context) { b.Run(ctx.Done()) }
