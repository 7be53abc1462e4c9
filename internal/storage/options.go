// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
)

// Prefix is the root of all keys, as upstream's --etcd-prefix.
const Prefix = "/registry"

// deleteCollectionWorkers is how many objects one DELETE of a collection
// removes at a time.
const deleteCollectionWorkers = 16

// Uncached are the resources without a watch cache: many writes, few watchers,
// or none.
var uncached = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
	{Resource: "servicenodeportallocations"}:     true,
	{Resource: "apiServerIPInfo"}:                true,
}

// unremembered are the resources whose deletions are nobody's question: many, and no owner's.
var unremembered = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// Resources gives every resource its storage on one Backend.
type Resources struct {
	Backend *Backend
	// Factory says where and in which version a resource is stored.
	Factory serverstorage.StorageFactory
	Counts  flowcontrolrequest.StorageObjectCountTracker
}

var _ generic.RESTOptionsGetter = Resources{}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r Resources) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := r.Factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	return generic.RESTOptions{
		StorageConfig:             config,
		Decorator:                 r.Backend.decorate,
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   deleteCollectionWorkers,
		ResourcePrefix:            r.Factory.ResourcePrefix(resource),
		CountMetricPollPeriod:     0,
		StorageObjectCountTracker: r.Counts,
	}, nil
}

// CustomResources stores the objects of CRDs, as JSON under group and resource.
func (b *Backend) CustomResources(counts flowcontrolrequest.StorageObjectCountTracker) generic.RESTOptionsGetter {
	return customResources{backend: b, counts: counts}
}

type customResources struct {
	backend *Backend
	counts  flowcontrolrequest.StorageObjectCountTracker
}

func (c customResources) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig(Prefix, unstructured.UnstructuredJSONScheme)
	config.StorageObjectCountTracker = c.counts
	return generic.RESTOptions{
		StorageConfig:             config.ForResource(resource),
		Decorator:                 c.backend.decorate,
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   deleteCollectionWorkers,
		ResourcePrefix:            resource.Group + "/" + resource.Resource,
		StorageObjectCountTracker: c.counts,
	}, nil
}

// decorate builds one resource's storage: etcd3 on the shared client, and the
// watch cache above it. It is a generic.StorageDecorator.
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
		config.GroupResource, b.transformer(config.GroupResource), config.LeaseManagerConfig, b.decoder(config.GroupResource, newFunc, etcd3.NewDefaultDecoder(config.Codec, versioner)), versioner)
	if err != nil {
		return nil, nil, err
	}
	var raw storage.Interface = exact{bookmarks{etcd}, b, config.GroupResource, resourcePrefix, path.Join("/", config.Prefix) + "/"}
	if !unremembered[config.GroupResource] {
		raw = recorded{raw, b, config.GroupResource}
	}
	forget := b.keep(config, resourcePrefix, keyFunc, newFunc)
	if uncached[config.GroupResource] {
		return raw, sync.OnceFunc(func() {
			forget()
			etcd.Close()
		}), nil
	}
	pace := newPace(b.clock)
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             paced{raw, pace},
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
	return readAhead{delegator, pace, resourcePrefix}, sync.OnceFunc(func() {
		delegator.Stop()
		cached.Stop()
		forget()
		etcd.Close()
	}), nil
}
