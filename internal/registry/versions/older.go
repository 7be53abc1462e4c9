// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions serves a kind in older versions of its API, of which k8s.io/api has the types.
// The kind is stored in one version. An older version is declared by what differs; everything else
// (fields of the same name, defaults, declared validation, lists) follows from the stored version.
package versions

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Older is a kind in an older version O, and what differs from its stored version S. Both are
// pointers to structs.
type Older[O, S runtime.Object] struct {
	// ToStored and ToOlder complete a conversion, after the fields of the same name were copied. What
	// they are given may share memory with its origin.
	ToStored func(older O, stored S)
	ToOlder  func(stored S, older O)
	// Default sets the defaults that differ. Those of the stored version follow.
	Default func(stored S)
	// List is the list type of the older version, StoredList that of the stored one.
	List, StoredList runtime.Object
}

// Register adds conversions, defaults and declared validations to a scheme that has the types.
func (v Older[O, S]) Register(scheme *runtime.Scheme) error {
	var older O
	var stored S
	for _, err := range []error{
		scheme.AddConversionFunc(older, stored, func(from, to any, _ conversion.Scope) error {
			v.toStored(from.(O), to.(S))
			return nil
		}),
		scheme.AddConversionFunc(stored, older, func(from, to any, _ conversion.Scope) error {
			v.toOlder(from.(S), to.(O))
			return nil
		}),
		v.registerList(scheme),
	} {
		if err != nil {
			return err
		}
	}
	example := create[O]()
	scheme.AddTypeDefaultingFunc(example, func(obj any) { v.setDefaults(scheme, obj.(O)) })
	scheme.AddValidationFunc(example, func(ctx context.Context, op operation.Operation, obj, old any) field.ErrorList {
		return v.validate(ctx, scheme, op, obj, old)
	})
	return nil
}

func (v Older[O, S]) registerList(scheme *runtime.Scheme) error {
	if v.List == nil {
		return nil
	}
	each := func(from, to any, convert func(from, to any)) error {
		source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
		target.FieldByName("ListMeta").Set(source.FieldByName("ListMeta"))
		items, out := source.FieldByName("Items"), target.FieldByName("Items")
		out.Set(reflect.MakeSlice(out.Type(), items.Len(), items.Len()))
		for i := range items.Len() {
			convert(items.Index(i).Addr().Interface(), out.Index(i).Addr().Interface())
		}
		return nil
	}
	err := scheme.AddConversionFunc(v.List, v.StoredList, func(from, to any, _ conversion.Scope) error {
		return each(from, to, func(from, to any) { v.toStored(from.(O), to.(S)) })
	})
	if err != nil {
		return err
	}
	scheme.AddTypeDefaultingFunc(v.List, func(obj any) {
		items := reflect.ValueOf(obj).Elem().FieldByName("Items")
		for i := range items.Len() {
			v.setDefaults(scheme, items.Index(i).Addr().Interface().(O))
		}
	})
	return scheme.AddConversionFunc(v.StoredList, v.List, func(from, to any, _ conversion.Scope) error {
		return each(from, to, func(from, to any) { v.toOlder(from.(S), to.(O)) })
	})
}

// toStored leaves the type metadata to the scheme.
func (v Older[O, S]) toStored(older O, stored S) {
	Copy(older, stored)
	stored.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if v.ToStored != nil {
		v.ToStored(older, stored)
	}
}

func (v Older[O, S]) toOlder(stored S, older O) {
	Copy(stored, older)
	older.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if v.ToOlder != nil {
		v.ToOlder(stored, older)
	}
}

func (v Older[O, S]) setDefaults(scheme *runtime.Scheme, older O) {
	kind := older.GetObjectKind().GroupVersionKind()
	stored := create[S]()
	v.toStored(older, stored)
	if v.Default != nil {
		v.Default(stored)
	}
	scheme.Default(stored)
	v.toOlder(stored, older)
	older.GetObjectKind().SetGroupVersionKind(kind)
}

// validate applies the declared validation of the stored version, whose fields have the same names.
func (v Older[O, S]) validate(ctx context.Context, scheme *runtime.Scheme, op operation.Operation, obj, old any) field.ErrorList {
	stored := create[S]()
	v.toStored(obj.(O), stored)
	if op.Type != operation.Update {
		return scheme.Validate(ctx, op.Options, stored, op.Request.Subresources...)
	}
	before := create[S]()
	v.toStored(old.(O), before)
	return scheme.ValidateUpdate(ctx, op.Options, stored, before, op.Request.Subresources...)
}

func create[T runtime.Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}
