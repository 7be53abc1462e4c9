// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apiserverstorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Environment is what the storage of kinds needs.
type Environment struct {
	Scheme  *runtime.Scheme
	Options generic.RESTOptionsGetter
	Clock   clock.PassiveClock
	// Declared holds the features that declared validations depend on.
	Declared map[string]bool
	// Gangs is set if PodGroups are served (see WithGangs).
	Gangs bool
}

// Store serves the standard verbs of one kind, on the generic registry.
type Store struct {
	*registry.Store
	Clock                  clock.PassiveClock
	shortNames, categories []string
	// graceful is set for kinds that are deleted gracefully, and returned when they are gone.
	graceful bool
}

var (
	_ rest.StandardStorage    = &Store{}
	_ rest.ShortNamesProvider = &Store{}
	_ rest.CategoriesProvider = &Store{}
)

// ShortNames returns the abbreviations that kubectl accepts ("deploy").
func (s *Store) ShortNames() []string { return s.shortNames }

// Categories returns the categories of the kind ("all").
func (s *Store) Categories() []string { return s.categories }

// Storage returns the endpoints of a kind, by resource and subresource name.
func (k Kind[T]) Storage(env Environment, gv schema.GroupVersion) (map[string]rest.Storage, error) {
	main, err := k.newStore(env, gv)
	if err != nil {
		return nil, fmt.Errorf("storage of %s: %w", k.Plural, err)
	}
	out := map[string]rest.Storage{k.Plural: main}
	if k.Endpoints.Replace != nil {
		out[k.Plural] = k.Endpoints.Replace(main)
	}
	if k.Status != nil {
		out[k.Plural+"/status"] = k.updateStore(main, env, gv, k.statusUpdate())
	}
	for name, update := range k.Updates {
		out[k.Plural+"/"+name] = k.updateStore(main, env, gv, update)
	}
	if k.Scale != nil {
		out[k.Plural+"/scale"] = &scaleStore[T]{main: main, kind: &k, parent: gv, versions: k.versions(env.Scheme, gv), scheme: env.Scheme, TableConvertor: scaleTable(env.Clock)}
	}
	if k.Endpoints.Subresources != nil {
		for name, storage := range k.Endpoints.Subresources(main) {
			out[k.Plural+"/"+name] = storage
		}
	}
	if k.Endpoints.Siblings != nil {
		maps.Copy(out, k.Endpoints.Siblings(main))
	}
	return out, nil
}

func (k *Kind[T]) newStrategy(env Environment, gv schema.GroupVersion) strategy[T] {
	return strategy[T]{
		DeclarativeValidation: rest.DeclarativeValidation{Scheme: env.Scheme},
		NameGenerator:         names.SimpleNameGenerator,
		kind:                  k,
		declared:              env.Declared,
		gangs:                 env.Gangs,
		versions:              k.versions(env.Scheme, gv),
	}
}

// versions returns the versions of the kind in the scheme, and the served one. Another group may
// have versions of it, whose internal type is the same.
func (k *Kind[T]) versions(scheme *runtime.Scheme, gv schema.GroupVersion) []schema.GroupVersion {
	var out []schema.GroupVersion
	kinds, _, _ := scheme.ObjectKinds(k.New())
	for _, kind := range kinds {
		for _, version := range scheme.VersionsForGroupKind(kind.GroupKind()) {
			if !slices.Contains(out, version) {
				out = append(out, version)
			}
		}
	}
	if !slices.Contains(out, gv) {
		out = append(out, gv)
	}
	return out
}

func (k *Kind[T]) newStore(env Environment, gv schema.GroupVersion) (*Store, error) {
	s := k.newStrategy(env, gv)
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return k.New() },
		NewListFunc:               k.NewList,
		PredicateFunc:             k.predicate,
		DefaultQualifiedResource:  gv.WithResource(k.Plural).GroupResource(),
		SingularQualifiedResource: gv.WithResource(k.singular()).GroupResource(),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		TableConvertor:            newTableConvertor(k, env.Clock),
	}
	if k.Table.Default {
		store.TableConvertor = rest.NewDefaultTableConvertor(store.DefaultQualifiedResource)
	}
	if k.Deletion.TTL > 0 {
		store.TTLFunc = func(_ runtime.Object, existing uint64, update bool) (uint64, error) {
			if update {
				return existing, nil
			}
			return k.Deletion.TTL, nil
		}
	}
	if k.Deletion.HasFinalizers != nil {
		store.ShouldDeleteDuringUpdate = func(ctx context.Context, key string, obj, existing runtime.Object) bool {
			return !k.Deletion.HasFinalizers(obj.(T)) && registry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
		}
	}
	store.ReturnDeletedObject = k.Deletion.ReturnObject
	k.Hooks.install(store)
	err := store.CompleteWithOptions(&generic.StoreOptions{
		RESTOptions: env.Options,
		AttrFunc:    k.attributes,
		TriggerFunc: k.triggers(),
		Indexers:    k.indexers(),
	})
	if err != nil {
		return nil, err
	}
	return &Store{
		Store: store, Clock: env.Clock, shortNames: k.ShortNames, categories: k.Categories,
		graceful: k.Deletion.Grace != nil && k.Deletion.ReturnObject && store.AfterDelete == nil && store.Decorator == nil,
	}, nil
}

func (k *Kind[T]) singular() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Name)
}

// attributes returns what selectors can match: labels, metadata and the kind's fields.
func (k *Kind[T]) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	obj, ok := object.(T)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a %s", object, k.Name)
	}
	set := make(fields.Set, 2+len(k.Fields))
	for name, value := range k.Fields {
		set[name] = value(obj)
	}
	set["metadata.name"] = obj.GetName()
	if !k.ClusterScoped {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	return obj.GetLabels(), set, nil
}

// predicate returns the predicate of a selector. The watch cache uses its indexed fields.
func (k *Kind[T]) predicate(label labels.Selector, field fields.Selector) apiserverstorage.SelectionPredicate {
	return apiserverstorage.SelectionPredicate{
		Label: label, Field: field, GetAttrs: k.attributes, IndexFields: k.FieldSelection.Indexed,
	}
}

func (k *Kind[T]) triggers() apiserverstorage.IndexerFuncs {
	if len(k.FieldSelection.Indexed) == 0 {
		return nil
	}
	// The watch cache dispatches by one trigger only. Lists use all indexes.
	name := k.FieldSelection.Indexed[0]
	return apiserverstorage.IndexerFuncs{
		name: func(obj runtime.Object) string { return k.Fields[name](obj.(T)) },
	}
}

func (k *Kind[T]) indexers() *cache.Indexers {
	out := cache.Indexers{}
	for _, name := range k.FieldSelection.Indexed {
		out[apiserverstorage.FieldIndex(name)] = func(object any) ([]string, error) {
			obj, ok := object.(T)
			if !ok {
				return nil, fmt.Errorf("%T is not a %s", object, k.Name)
			}
			return []string{k.Fields[name](obj)}, nil
		}
	}
	return &out
}
