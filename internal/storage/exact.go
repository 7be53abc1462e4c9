// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/utils/clock"
)

// exact is a storage that deletes an object of which the version is named, as the garbage
// collector always does, with the transaction alone. The library would encode the object that
// the watch cache has, as what to go back to, and decode it again as what was deleted.
type exact struct {
	storage.Interface
	backend  *Backend
	resource schema.GroupResource
	// prefix is what begins the resource's keys, below root in etcd.
	prefix, root string
}

// Delete implements storage.Interface. The library decides about whatever is not as the caller
// and the cache have it.
func (e exact) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	version, ok := namedVersion(key, preconditions, cached)
	if !ok || opts.ExpectTransformOrDecodeError {
		return e.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	path, err := e.path(key)
	if err != nil {
		return err
	}
	deleted, err := conversion.EnforcePtr(out)
	if err != nil {
		return err
	}
	// Whether or not it is still stored, the caller wants this version deleted, and no other.
	if err := validate(ctx, cached); err != nil {
		return err
	}
	began := clock.RealClock{}.Now() // whatever time the cluster is told
	done, err := e.backend.client.Kubernetes.OptimisticDelete(ctx, path, int64(version), kubernetes.DeleteOptions{})
	metrics.RecordEtcdRequest("delete", e.resource, err, began)
	if err != nil {
		return err
	}
	if !done.Succeeded {
		return e.Interface.Delete(ctx, key, out, preconditions, validate, nil, opts)
	}
	last, err := conversion.EnforcePtr(cached)
	if err != nil {
		return err
	}
	deleted.Set(last) // the cache gave its own copy
	return storage.APIObjectVersioner{}.UpdateObject(out, uint64(done.Revision))
}

// namedVersion is the version that the preconditions name, if it is the one that the cache has
// and nothing else speaks against it.
func namedVersion(key string, preconditions *storage.Preconditions, cached runtime.Object) (uint64, bool) {
	if preconditions == nil || preconditions.ResourceVersion == nil || cached == nil || preconditions.Check(key, cached) != nil {
		return 0, false
	}
	object, err := meta.Accessor(cached)
	if err != nil {
		return 0, false
	}
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(object.GetResourceVersion())
	return version, err == nil && version > 0
}

// path is the key in etcd.
func (e exact) path(key string) (string, error) {
	key, err := storage.PrepareKey(e.prefix, key, false)
	return e.root + strings.TrimPrefix(key, "/"), err
}
