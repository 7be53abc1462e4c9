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

// decorate builds the stack of one resource; the package comment draws it. It is a
// generic.StorageDecorator.
func (b *Backend) decorate(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	attributes storage.AttrFunc,
	triggers storage.IndexerFuncs,
	indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	if err := b.Readable(config.GroupResource, resourcePrefix); err != nil {
		return nil, nil, err
	}
	versioner := storage.APIObjectVersioner{}
	etcd, err := etcd3.New(b.client, b.compactor, config.Codec, newFunc, newListFunc, config.Prefix, resourcePrefix,
		config.GroupResource, b.transformer(config.GroupResource), config.LeaseManagerConfig, b.wrapDecoder(config.GroupResource, newFunc, etcd3.NewDefaultDecoder(config.Codec, versioner)), versioner)
	if err != nil {
		return nil, nil, err
	}
	raw := deletions{
		Interface: bookmarkFilter{etcd}, backend: b, resource: config.GroupResource, recorded: !unrecorded[config.GroupResource],
		prefix: resourcePrefix, root: path.Join("/", config.Prefix) + "/",
	}
	forget := b.register(config, resourcePrefix, keyFunc, newFunc)
	if uncached[config.GroupResource] {
		return raw, sync.OnceFunc(func() {
			forget()
			etcd.Close()
		}), nil
	}
	pressure := newBackpressure(b.clock)
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             eventThrottle{raw, pressure},
		Versioner:           versioner,
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		forget()
		etcd.Close()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, raw)
	return watchBuffer{awaitedCache{delegator, cached}, pressure, resourcePrefix}, sync.OnceFunc(func() {
		delegator.Stop()
		cached.Stop()
		forget()
		etcd.Close()
	}), nil
}
