// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// path is the path of a field: names, and indexes of lists.
type path []any

func (p path) child(step any) path { return append(slices.Clone(p), step) }

// String returns the path as validation errors have it.
func (p path) String() string {
	var out strings.Builder
	for i, step := range p {
		switch name, isName := step.(string); {
		case !isName:
			fmt.Fprintf(&out, "[%d]", step)
		case i == 0:
			out.WriteString(name)
		default:
			out.WriteString("." + name)
		}
	}
	return out.String()
}

// set sets a field, and the objects on the way to it. It reports false if a list on the way is too
// short.
func (p path) set(fields map[string]any, value any) bool {
	var at any = fields
	for i, step := range p {
		last := i == len(p)-1
		switch container := at.(type) {
		case map[string]any:
			name, ok := step.(string)
			if !ok {
				return false
			}
			if last {
				container[name] = value
				return true
			}
			if container[name] == nil {
				container[name] = map[string]any{}
			}
			at = container[name]
		case []any:
			index, ok := step.(int)
			if !ok || index >= len(container) {
				return false
			}
			if last {
				container[index] = value
				return true
			}
			at = container[index]
		default:
			return false
		}
	}
	return false
}

// get returns the value of a field, or nil if there is none.
func (p path) get(fields map[string]any) any {
	var at any = fields
	for _, step := range p {
		switch container := at.(type) {
		case map[string]any:
			name, _ := step.(string)
			at = container[name]
		case []any:
			index, ok := step.(int)
			if !ok || index >= len(container) {
				return nil
			}
			at = container[index]
		default:
			return nil
		}
	}
	return at
}

// difference is a field that two objects do not have in common; nil means that one does not have it.
type difference struct {
	path
	want, got any
}

// differences compares two objects. It ignores fields that are empty, and those that only the server
// sets.
func differences(want, got map[string]any) []difference {
	var out []difference
	compare(nil, want, got, &out)
	return slices.DeleteFunc(out, func(d difference) bool {
		at := d.path
		return at[0] == "status" || at[len(at)-1] == appsv1.DeprecatedTemplateGeneration || isSameJSON(d.want, d.got)
	})
}

// isSameJSON reports whether two texts are JSON objects with the same fields: annotations of
// autoscaling/v1 hold the fields of autoscaling/v2 in JSON.
func isSameJSON(a, b any) bool {
	var decoded [2]map[string]any
	for i, value := range []any{a, b} {
		text, ok := value.(string)
		if !ok || json.Unmarshal([]byte(text), &decoded[i]) != nil {
			return false
		}
	}
	var out []difference
	compare(nil, decoded[0], decoded[1], &out)
	return len(out) == 0
}

func compare(at path, want, got any, out *[]difference) {
	wanted, bothObjects := want.(map[string]any)
	gotten, isObject := got.(map[string]any)
	if bothObjects && isObject {
		for _, name := range slices.Sorted(maps.Keys(union(wanted, gotten))) {
			compare(at.child(name), wanted[name], gotten[name], out)
		}
		return
	}
	wantList, bothLists := want.([]any)
	gotList, isList := got.([]any)
	if bothLists && isList && len(wantList) == len(gotList) {
		for i := range wantList {
			compare(at.child(i), wantList[i], gotList[i], out)
		}
		return
	}
	if isEmpty(want) {
		want = nil
	}
	if isEmpty(got) {
		got = nil
	}
	if !reflect.DeepEqual(want, got) {
		*out = append(*out, difference{at, want, got})
	}
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// isEmpty reports whether a value says nothing: there is none, or it is an object or list of such
// values.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, field := range v {
			if !isEmpty(field) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return false
}

// trim removes empty fields that the original does not have, such as "status: {}". Go types encode them
// even if they are not set.
func trim(fields, original any) {
	switch f := fields.(type) {
	case map[string]any:
		o, _ := original.(map[string]any)
		for name, value := range f {
			trim(value, o[name])
			if _, given := o[name]; !given && isZero(value) {
				delete(f, name)
			}
		}
	case []any:
		o, _ := original.([]any)
		for i, value := range f {
			var same any
			if i < len(o) {
				same = o[i]
			}
			trim(value, same)
		}
	}
}

func isZero(value any) bool {
	switch value {
	case "", int64(0), float64(0), false:
		return true
	}
	return isEmpty(value)
}
