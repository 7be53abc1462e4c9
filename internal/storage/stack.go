// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
)

// uncached are the resources without a watch cache: they have many writes, and few watches
// or none.
var uncached = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
	{Resource: "servicenodeportallocations"}:     true,
	{Resource: "apiServerIPInfo"}:                true,
}

// IsCached reports whether a resource has a watch cache.
func IsCached(resource schema.GroupResource) bool { return !uncached[resource] }

// Watch caches keep no snapshots of past versions, from which upstream's serve the pages of a list: each kept every object that
// was written in the last five minutes, and half of the memory of watch caches after a load was theirs. Pages after the first
// are read from the store instead (docs/performance.md).
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.ListFromCacheSnapshot, false))
}

// unrecorded are the resources whose deletions get no record: there are many, and events own
// nothing.
var unrecorded = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// resourceStorage is what a generic.StorageDecorator gets.
type resourceStorage struct {
	config      *storagebackend.ConfigForResource
	prefix      string
	keyFunc     func(runtime.Object) (string, error)
	newFunc     func() runtime.Object
	newListFunc func() runtime.Object
	attributes  storage.AttrFunc
	triggers    storage.IndexerFuncs
	indexers    *cache.Indexers
}

// decorator returns a generic.StorageDecorator that builds the stack of one resource; the package comment draws it. If lazy is
// set, the watch cache is opened by the first list or watch.
func (b *Backend) decorator(lazy bool) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource,
		prefix string,
		keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		attributes storage.AttrFunc,
		triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		return b.build(resourceStorage{config, prefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers}, lazy)
	}
}

func (b *Backend) build(r resourceStorage, lazy bool) (storage.Interface, factory.DestroyFunc, error) {
	resource := r.config.GroupResource
	if err := b.Readable(resource, r.prefix); err != nil {
		return nil, nil, err
	}
	versioner := storage.APIObjectVersioner{}
	etcd, err := etcd3.New(b.client, b.compactor, r.config.Codec, r.newFunc, r.newListFunc, r.config.Prefix, r.prefix, resource,
		b.transformer(resource), r.config.LeaseManagerConfig, b.wrapDecoder(resource, r.newFunc, etcd3.NewDefaultDecoder(r.config.Codec, versioner)), versioner)
	if err != nil {
		return nil, nil, err
	}
	raw := deletions{
		Interface: etcd, backend: b, resource: resource, recorded: !unrecorded[resource],
		prefix: r.prefix, root: path.Join("/", r.config.Prefix) + "/",
	}
	forget := b.register(r, raw)
	end := func() {
		forget()
		etcd.Close()
	}
	if uncached[resource] {
		return raw, sync.OnceFunc(end), nil
	}
	open := func() (storage.Interface, func(), error) { return b.openCache(r, raw, lazy) }
	if lazy {
		l := &lazyCache{Interface: raw, open: open}
		return l, sync.OnceFunc(func() {
			l.destroy()
			end()
		}), nil
	}
	cached, stop, err := open()
	if err != nil {
		end()
		return nil, nil, err
	}
	return cached, sync.OnceFunc(func() {
		stop()
		end()
	}), nil
}

// openCache opens the watch cache of a resource above its store. It returns the layers from the cache up, and a function that
// ends them. If awaited is set, clients wait for the cache too.
func (b *Backend) openCache(r resourceStorage, raw storage.Interface, awaited bool) (storage.Interface, func(), error) {
	pressure := newBackpressure(b.clock)
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             eventThrottle{ownStream{raw, r.config.GroupResource.String()}, pressure},
		Versioner:           raw.Versioner(),
		GroupResource:       r.config.GroupResource,
		EventsHistoryWindow: r.config.EventsHistoryWindow,
		ResourcePrefix:      r.prefix,
		KeyFunc:             r.keyFunc,
		NewFunc:             r.newFunc,
		NewListFunc:         r.newListFunc,
		GetAttrsFunc:        r.attributes,
		IndexerFuncs:        r.triggers,
		Indexers:            r.indexers,
		Codec:               r.config.Codec,
	})
	if err != nil {
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, raw)
	stop := func() {
		delegator.Stop()
		cached.Stop()
	}
	return watchBuffer{awaitedCache{delegator, cached, awaited}, pressure, r.prefix}, stop, nil
}
