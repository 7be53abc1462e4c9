// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import "reflect"

// Copy sets the fields of one struct from those of the same name of another, like upstream's
// generated conversions. Both are pointers. It does not copy what both types share (pod templates,
// metadata): the structs then have the same memory, and must not be changed in place.
func Copy(from, to any) {
	copyFields(reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem())
}

func copyFields(from, to reflect.Value) {
	for i := range from.NumField() {
		target := to.FieldByName(from.Type().Field(i).Name)
		if target.IsValid() {
			copyValue(from.Field(i), target)
		}
	}
}

// copyValue leaves out values that the target cannot hold, such as a number in a string.
func copyValue(from, to reflect.Value) {
	switch {
	case from.Type() == to.Type():
		to.Set(from)
	case from.Kind() == reflect.Pointer && to.Kind() == reflect.Pointer:
		copyPointer(from, to)
	case from.Kind() == reflect.Pointer: // unset is the zero value
		if to.SetZero(); !from.IsNil() {
			copyValue(from.Elem(), to)
		}
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		copyValue(from, to.Elem())
	case from.Kind() != to.Kind():
	case from.Kind() == reflect.Struct:
		copyFields(from, to)
	case from.Kind() == reflect.Slice:
		copySlice(from, to)
	case from.CanConvert(to.Type()): // named strings
		to.Set(from.Convert(to.Type()))
	}
}

func copyPointer(from, to reflect.Value) {
	if from.IsNil() {
		to.SetZero()
		return
	}
	to.Set(reflect.New(to.Type().Elem()))
	copyValue(from.Elem(), to.Elem())
}

func copySlice(from, to reflect.Value) {
	if from.IsNil() {
		to.SetZero()
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
	for i := range from.Len() {
		copyValue(from.Index(i), to.Index(i))
	}
}
