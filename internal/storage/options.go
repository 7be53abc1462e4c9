// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Prefix is the root of all keys, as upstream's --etcd-prefix.
const Prefix = "/registry"

// deleteCollectionWorkers is how many objects one DELETE of a collection deletes at a time.
const deleteCollectionWorkers = 16

// Resources returns the storage options of built-in resources.
type Resources struct {
	Backend *Backend
	// Factory decides under which prefix and in which version a resource is stored.
	Factory serverstorage.StorageFactory
	Counts  flowcontrolrequest.StorageObjectCountTracker
}

// countPeriod is the interval at which the objects of each resource are counted, for metrics such as apiserver_storage_objects and for the
// cost of lists in priority and fairness. It is the default of kube-apiserver.
const countPeriod = time.Minute

var _ generic.RESTOptionsGetter = Resources{}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r Resources) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := r.Factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	return generic.RESTOptions{
		StorageConfig:             config,
		Decorator:                 r.Backend.decorator(false),
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   deleteCollectionWorkers,
		ResourcePrefix:            r.Factory.ResourcePrefix(resource),
		CountMetricPollPeriod:     countPeriod,
		StorageObjectCountTracker: r.Counts,
	}, nil
}

// CustomResources returns the storage options of custom resources, which are stored as JSON
// under their group and resource.
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
		Decorator:                 c.backend.decorator(true),
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   deleteCollectionWorkers,
		ResourcePrefix:            resource.Group + "/" + resource.Resource,
		CountMetricPollPeriod:     countPeriod,
		StorageObjectCountTracker: c.counts,
	}, nil
}
