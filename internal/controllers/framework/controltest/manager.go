// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controltest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Run runs the controllers under a real manager, whose informers watch the World's API, on
// the real clock, until the test ends. Unlike calls of Reconcile, it covers what Add
// registers: watches, predicates and indexes.
func (w *World) Run(t testing.TB, controllers ...control.Controller) {
	t.Helper()
	// The in-memory API panics when a watcher falls further behind than this.
	watch.DefaultChanSize = 100_000
	mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Scheme:  w.API.Scheme(),
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return testrestmapper.TestOnlyStaticRESTMapper(w.API.Scheme()), nil
		},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		NewCache: func(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
			options.DefaultUnsafeDisableDeepCopy = ptr.To(true)
			options.NewInformer = w.newInformer
			return cache.New(cfg, options)
		},
	})
	w.Must(err)
	env := w.Env()
	env.Manager, env.Config = mgr, mgr.GetConfig()
	env.Clock = clock.RealClock{}
	env.Client = cachedClient{WithWatch: w.API, Cached: pods.Cached{Cache: mgr.GetCache()}, reader: mgr.GetCache()}
	for _, c := range controllers {
		w.Must(c.Add(env))
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not sync")
	}
}

// newInformer returns an informer of the World's API and ignores the given ListerWatcher.
func (w *World) newInformer(_ toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	newList := func() client.ObjectList {
		gvk, err := apiutil.GVKForObject(obj, w.API.Scheme())
		w.Must(err)
		gvk.Kind += "List"
		list, err := w.API.Scheme().New(gvk)
		w.Must(err)
		list.GetObjectKind().SetGroupVersionKind(gvk)
		return list.(client.ObjectList)
	}
	// The in-memory API has no history: a watch begins before its list, or it would miss
	// the writes between the two.
	var begun watch.Interface
	return toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if begun != nil {
				begun.Stop()
			}
			list := newList()
			var err error
			if begun, err = w.API.Watch(ctx, newList()); err != nil {
				return nil, err
			}
			if err := w.API.List(ctx, list); err != nil {
				return nil, err
			}
			list.SetResourceVersion("1")
			if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata {
				begun = watch.Filter(begun, onlyMetadata)
				return metadataOf(list)
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return begun, nil
		},
	}, noWatchList{}), obj, resync, indexers)
}

// metadataOf returns a list as a server returns it if only metadata is requested.
func metadataOf(list client.ObjectList) (runtime.Object, error) {
	objects, err := meta.ExtractList(list)
	out := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: list.GetResourceVersion()}}
	for _, obj := range objects {
		m, _ := meta.Accessor(obj)
		out.Items = append(out.Items, *meta.AsPartialObjectMetadata(m))
	}
	return out, err
}

func onlyMetadata(e watch.Event) (watch.Event, bool) {
	if m, err := meta.Accessor(e.Object); err == nil {
		e.Object = meta.AsPartialObjectMetadata(m)
	}
	return e, true
}

// noWatchList disables streaming lists, which the in-memory API does not support.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// cachedClient reads from the manager's cache and writes to the API.
type cachedClient struct {
	client.WithWatch
	pods.Cached
	reader client.Reader
}

func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}
