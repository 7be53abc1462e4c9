// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Transient is a resource that is not stored, such as a review.
type Transient struct {
	Plural   string
	Endpoint rest.Storage
}

// Storage implements Resource.
func (t Transient) Storage(Environment, schema.GroupVersion) (map[string]rest.Storage, error) {
	return map[string]rest.Storage{t.Plural: t.Endpoint}, nil
}

// Register implements Resource.
func (t Transient) Register(scheme *runtime.Scheme, gv schema.GroupVersion) error {
	return Internal(gv.Group, t.Endpoint.New())(scheme)
}

// Internal registers types under a group's internal version, for subresources (Scale,
// TokenRequest, options).
func Internal(group string, types ...runtime.Object) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}, types...)
		return nil
	}
}

// QueryOptions registers the conversion of URL queries to the type, for options such as those
// of logs and exec.
func QueryOptions[T any]() func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		return scheme.AddConversionFunc((*url.Values)(nil), (*T)(nil), func(from, to any, _ conversion.Scope) error {
			return decodeQuery(*from.(*url.Values), reflect.ValueOf(to.(*T)).Elem())
		})
	}
}

var timeType = reflect.TypeFor[metav1.Time]()

// decodeQuery sets the fields of a struct from the parameters with their JSON names, like
// apimachinery's generated conversions from url.Values.
func decodeQuery(values url.Values, into reflect.Value) error {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		given := values[name]
		if name == "" || len(given) == 0 {
			continue
		}
		if err := decodeParameter(given, into.Field(i)); err != nil {
			return fmt.Errorf("query parameter %s: %w", name, err)
		}
	}
	return nil
}

func decodeParameter(given []string, into reflect.Value) error {
	if into.Type() == timeType {
		return into.Addr().Interface().(*metav1.Time).UnmarshalQueryParameter(given[0])
	}
	switch into.Kind() {
	case reflect.Pointer:
		value := reflect.New(into.Type().Elem())
		if err := decodeParameter(given, value.Elem()); err != nil {
			return err
		}
		into.Set(value)
	case reflect.Slice:
		out := reflect.MakeSlice(into.Type(), len(given), len(given))
		for i := range given {
			if err := decodeParameter(given[i:i+1], out.Index(i)); err != nil {
				return err
			}
		}
		into.Set(out)
	case reflect.String:
		into.SetString(given[0])
	case reflect.Bool:
		into.SetBool(isTrue(given[0]))
	case reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(given[0], 10, into.Type().Bits())
		if err != nil {
			return err
		}
		into.SetInt(n)
	}
	return nil
}

// isTrue parses a boolean parameter. Any value but false and 0 is true.
func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "false", "0":
		return false
	}
	return true
}
