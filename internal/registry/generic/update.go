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

// updateStore serves a subresource that is declared as an Update. It shares the
// storage of the kind and differs in strategy alone.
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

// Destroy leaves the storage to the kind, which owns it.
func (s updateStore) Destroy() {}

// Update never creates: a subresource belongs to an object that is there.
func (s updateStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

func (s updateStore) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return s.fields
}

// readableUpdateStore serves GET and PATCH too.
type readableUpdateStore struct{ updateStore }

func (s readableUpdateStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

func (s readableUpdateStore) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, object, options)
}
