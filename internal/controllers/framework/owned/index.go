// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ControllerIndex finds objects by the UID of the controller in their
	// ownerReferences, or by Orphan.
	ControllerIndex = ".metadata.controller"
	// Orphan is the index value of objects without a controller.
	Orphan = "orphan"
)

// ControllerOf is the index function of ControllerIndex.
func ControllerOf(obj client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return []string{Orphan}
}

// Index adds ControllerIndex to the shared cache for the kind of obj, and returns a
// function for the resource version that the cache has reached (see Ledger). Several
// controllers may index the same kind.
func Index(ctx context.Context, shared cache.Cache, obj client.Object) (seen func() string, err error) {
	indexer, err := EnsureIndex(ctx, shared, obj, ControllerIndex, ControllerOf)
	if err != nil {
		return nil, err
	}
	return indexer.LastStoreSyncResourceVersion, nil
}

// Seen returns the function that Index returns, for a kind whose owners are not looked up.
func Seen(ctx context.Context, shared cache.Cache, obj client.Object) (seen func() string, err error) {
	indexer, err := StoreOf(ctx, shared, obj)
	if err != nil {
		return nil, err
	}
	return indexer.LastStoreSyncResourceVersion, nil
}

// EnsureIndex adds an index to the shared cache for the kind of obj, unless another controller has added
// it, and returns the store.
func EnsureIndex(ctx context.Context, shared cache.Cache, obj client.Object, field string, values client.IndexerFunc) (toolscache.Indexer, error) {
	indexer, err := StoreOf(ctx, shared, obj)
	if err != nil {
		return nil, err
	}
	// Adding an index twice is an error.
	if _, exists := indexer.GetIndexers()[indexName(field)]; !exists {
		if err := shared.IndexField(ctx, obj, field, values); err != nil {
			return nil, err
		}
	}
	return indexer, nil
}

// indexName returns what controller-runtime calls an index.
func indexName(field string) string { return "field:" + field }

// ByField returns what an index of the store has for a value of a field, in a namespace, or in all if it is empty.
func ByField(store toolscache.Indexer, namespace, field, value string) ([]any, error) {
	return store.ByIndex(indexName(field), cmp.Or(namespace, allNamespaces)+"/"+value)
}

// allNamespaces is what controller-runtime has in its indexes for lists of all namespaces.
const allNamespaces = "__all_namespaces"

// StoreOf returns the store of the shared cache for the kind of obj, which may not have synced yet.
func StoreOf(ctx context.Context, shared cache.Cache, obj client.Object) (toolscache.Indexer, error) {
	informer, err := shared.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("the cache of %T has no store to index", obj)
	}
	return indexed.GetIndexer(), nil
}

// By selects the objects in a namespace that the controller with the given UID owns, or
// with Orphan those without a controller. The objects are not copied, since an owner of a
// thousand pods lists them often; they must not be modified.
func By(namespace, uid string) []client.ListOption {
	return []client.ListOption{client.InNamespace(namespace), client.MatchingFields{ControllerIndex: uid}, client.UnsafeDisableDeepCopy}
}
