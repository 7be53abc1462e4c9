// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Confirm reports whether an owner from the cache still exists in the API and is not being deleted.
// A controller calls it before it creates children: owners and children are cached from separate
// watches, so a controller may know that the garbage collector has deleted the children before it
// knows that their owner is gone. Without the check it would create them once more.
func Confirm(ctx context.Context, live client.Reader, owner client.Object) (bool, error) {
	fresh, err := reread(ctx, live, owner)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return fresh.GetUID() == owner.GetUID() && fresh.GetDeletionTimestamp() == nil, nil
}

// reread reads the object that now has the name of an object from the cache.
func reread[T client.Object](ctx context.Context, live client.Reader, cached T) (T, error) {
	// Get leaves what is in an object, such as labels, if the read object does not have it.
	fresh := reflect.New(reflect.TypeOf(cached).Elem()).Interface().(T)
	err := live.Get(ctx, client.ObjectKeyFromObject(cached), fresh)
	return fresh, err
}
