// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	genericapiserver "k8s.io/apiserver/pkg/server"
	builder "k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/kindred-project/kindred/internal/apiserver/openapi"
)

// fieldTypes converts objects of built-in groups to the types of structured-merge-diff, by which the managers of their fields
// are found. It does what managedfields.NewTypeConverter does, with two differences:
//
//   - The types are read from the OpenAPI definitions when the first object is converted, and not at the start, which needs
//     them for few groups.
//   - An object of a Go type is not validated against the schema of that type, which took half of the time of a conversion.
//     What a client applies is not of a Go type yet, and is validated.
type fieldTypes struct {
	converter func() (managedfields.TypeConverter, error)
	// known are the types of kinds that were converted before: fieldType by schema.GroupVersionKind.
	known sync.Map
}

type fieldType struct {
	schema *smdschema.Schema
	ref    smdschema.TypeRef
}

// newFieldTypes returns the types that the models describe.
func newFieldTypes(models func() (map[string]*spec.Schema, error)) *fieldTypes {
	return &fieldTypes{converter: sync.OnceValues(func() (managedfields.TypeConverter, error) {
		described, err := models()
		if err != nil {
			return nil, err
		}
		return managedfields.NewTypeConverter(described, false)
	})}
}

// models returns the OpenAPI models of the groups' resources, by name.
func models(config *common.OpenAPIV3Config, groups []*genericapiserver.APIGroupInfo) (map[string]*spec.Schema, error) {
	names, err := typeNames(groups)
	if err != nil {
		return nil, err
	}
	return builder.BuildOpenAPIDefinitionsForResources(openapi.Apart(config), names...)
}

// typeNames returns the names that OpenAPI has for the types of the groups' resources.
func typeNames(groups []*genericapiserver.APIGroupInfo) (names []string, err error) {
	for _, info := range groups {
		for _, gv := range info.PrioritizedVersions {
			for _, storage := range info.VersionedResourcesStorageMap[gv.Version] {
				kind, err := endpoints.GetResourceKind(gv, storage, info.Scheme)
				if err != nil {
					return nil, err
				}
				object, err := info.Scheme.New(kind)
				if err != nil {
					return nil, err
				}
				names = append(names, util.GetCanonicalTypeName(object))
			}
		}
	}
	return names, nil
}

// ObjectToTyped implements managedfields.TypeConverter.
func (f *fieldTypes) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := object.GetObjectKind().GroupVersionKind()
	if known, ok := f.known.Load(kind); ok && isChecked(object, options) {
		v, err := value.NewValueReflect(object)
		if err != nil {
			return nil, err
		}
		return typed.AsTypedUnvalidated(v, known.(fieldType).schema, known.(fieldType).ref), nil
	}
	return f.validated(kind, object, options)
}

// isChecked reports whether an object needs no validation: Go has checked its types, and duplicates in lists are allowed.
func isChecked(object runtime.Object, options []typed.ValidationOptions) bool {
	_, isGeneric := object.(runtime.Unstructured)
	return !isGeneric && slices.Contains(options, typed.AllowDuplicates)
}

func (f *fieldTypes) validated(kind schema.GroupVersionKind, object runtime.Object, options []typed.ValidationOptions) (*typed.TypedValue, error) {
	converter, err := f.converter()
	if err != nil {
		return nil, err
	}
	converted, err := converter.ObjectToTyped(object, options...)
	if err != nil {
		return nil, err
	}
	f.known.Store(kind, fieldType{converted.Schema(), converted.TypeRef()})
	return converted, nil
}

// TypedToObject implements managedfields.TypeConverter.
func (f *fieldTypes) TypedToObject(converted *typed.TypedValue) (runtime.Object, error) {
	converter, err := f.converter()
	if err != nil {
		return nil, err
	}
	return converter.TypedToObject(converted)
}
