// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
)

// Delete implements rest.GracefulDeleter. An object that is terminating already, and is now deleted
// without a grace period, is removed in one write: a pod whose node has stopped its containers. The
// generic registry writes a grace period of 0 first, and every watch gets that event too.
func (s *Store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if !s.graceful || !endsGrace(options) {
		return s.Store.Delete(ctx, name, validate, options)
	}
	out, err := s.removeTerminating(ctx, name, validate, options)
	if out == nil && err == nil {
		return s.Store.Delete(ctx, name, validate, options)
	}
	return out, err == nil, err
}

// endsGrace reports whether a deletion ends the grace period of an object at once.
func endsGrace(options *metav1.DeleteOptions) bool {
	return options != nil && options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 && len(options.DryRun) == 0
}

// removeTerminating removes a terminating object in the version that is stored. It returns nil without an
// error if the generic registry must decide, as for an object that has finalizers or changes meanwhile.
func (s *Store) removeTerminating(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, error) {
	key, err := s.KeyFunc(ctx, name)
	if err != nil {
		return nil, nil
	}
	// Not from the watch cache, which may lack the final status that the node has just written.
	stored := s.NewFunc()
	if err := s.Storage.Get(ctx, key, storage.GetOptions{}, stored); err != nil {
		return nil, nil
	}
	object, err := meta.Accessor(stored)
	if err != nil || object.GetDeletionTimestamp() == nil || len(object.GetFinalizers()) > 0 {
		return nil, nil
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	exact := &storage.Preconditions{UID: &uid, ResourceVersion: &version}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != uid || p.ResourceVersion != nil && *p.ResourceVersion != version) {
		return nil, nil
	}
	out := s.NewFunc()
	err = s.Storage.Delete(ctx, key, out, exact, storage.ValidateObjectFunc(validate), false, nil, storage.DeleteOptions{})
	switch {
	case storage.IsInvalidObj(err), storage.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, storeerr.InterpretDeleteError(err, s.DefaultQualifiedResource, name)
	}
	return out, nil
}
