// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// updateStore serves a subresource that is declared as an Update. It shares the kind's storage
// and has its own strategy.
type updateStore struct {
	store  *Store
	fields map[fieldpath.APIVersion]fieldpath.Filter
}

var (
	_ rest.Updater                   = updateStore{}
	_ rest.ResetFieldsFilterStrategy = updateStore{}
	_ rest.Patcher                   = readableUpdateStore{}
)

func (k *Kind[T]) updateStore(main *Store, env Environment, gv schema.GroupVersion, update Update[T]) rest.Storage {
	s := updateStrategy[T]{k.newStrategy(env, gv), update}
	store := *main.Store
	store.UpdateStrategy = s
	store.ResetFieldsStrategy = nil
	store.BeginUpdate = nil
	out := updateStore{&Store{Store: &store, Clock: main.Clock}, s.fields()}
	if update.WriteOnly {
		return out
	}
	return readableUpdateStore{out}
}

func (s updateStore) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the kind owns the storage.
func (s updateStore) Destroy() {}

// Update never creates the object.
func (s updateStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

func (s updateStore) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return s.fields
}

// readableUpdateStore also serves GET and PATCH.
type readableUpdateStore struct{ updateStore }

func (s readableUpdateStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

func (s readableUpdateStore) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, object, options)
}
