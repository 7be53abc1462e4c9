// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
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
	// Orphan is the index value of objects that no controller owns.
	Orphan = "orphan"
)

// ControllerOf is the function behind ControllerIndex.
func ControllerOf(obj client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return []string{Orphan}
}

// Index makes sure that the shared cache keeps ControllerIndex for the kind of
// obj, and returns how far that cache has come (see Ledger). Several
// controllers may ask for the same kind.
func Index(ctx context.Context, shared cache.Cache, obj client.Object) (seen func() string, err error) {
	informer, err := shared.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("the cache of %T has no store to index", obj)
	}
	// controller-runtime names the index of a field so; adding it twice is an error.
	if _, exists := indexed.GetIndexer().GetIndexers()["field:"+ControllerIndex]; !exists {
		if err := shared.IndexField(ctx, obj, ControllerIndex, ControllerOf); err != nil {
			return nil, err
		}
	}
	return indexed.GetIndexer().LastStoreSyncResourceVersion, nil
}

// By selects, in one namespace, what the controller with the given UID owns;
// with Orphan, what nobody owns. What is listed shares memory with the cache
// and must not be changed: an owner of a thousand pods lists them often.
func By(namespace, uid string) []client.ListOption {
	return []client.ListOption{client.InNamespace(namespace), client.MatchingFields{ControllerIndex: uid}, client.UnsafeDisableDeepCopy}
}
