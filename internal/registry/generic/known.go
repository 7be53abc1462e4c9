// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	apiserverstorage "k8s.io/apiserver/pkg/storage"
)

// Delete implements rest.GracefulDeleter. Who names the version that is to be deleted, as the
// garbage collector always does, spares the store a read where the watch cache has that
// version: the decision is taken from it, and the deletion itself holds only if the store has
// the same.
func (s *Store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if options != nil && options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
		ctx = context.WithValue(ctx, knownVersion{}, *options.Preconditions.ResourceVersion)
	}
	return s.Store.Delete(ctx, name, validate, options)
}

type knownVersion struct{}

// known is a storage that reads an object from its cache if the context says which version is
// wanted, and the cache has just that. It is not for kinds that are deleted gracefully: a
// second deletion of those is answered without a write, which alone would tell that the store
// has gone on.
type known struct{ apiserverstorage.Interface }

func (k known) Get(ctx context.Context, key string, options apiserverstorage.GetOptions, out runtime.Object) error {
	version, ok := ctx.Value(knownVersion{}).(string)
	if ok && options.ResourceVersion == "" && k.cached(ctx, key, version, out) {
		return nil
	}
	return k.Interface.Get(ctx, key, options, out)
}

func (k known) cached(ctx context.Context, key, version string, out runtime.Object) bool {
	into, err := conversion.EnforcePtr(out)
	if err != nil {
		return false
	}
	// Whatever the cache has, at once.
	err = k.Interface.Get(ctx, key, apiserverstorage.GetOptions{ResourceVersion: "0"}, out)
	object, metaErr := meta.Accessor(out)
	if err != nil || metaErr != nil || object.GetResourceVersion() != version {
		into.SetZero()
		return false
	}
	// The cache's own maps and slices are everybody's.
	copied, err := conversion.EnforcePtr(out.DeepCopyObject())
	if err != nil {
		into.SetZero()
		return false
	}
	into.Set(copied)
	return true
}
