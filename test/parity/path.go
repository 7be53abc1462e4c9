// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// path leads to a value: a string is a key of an object, an int an index of a list.
type path []any

// to returns the path extended by a step. It shares nothing with p.
func (p path) to(step any) path { return append(slices.Clone(p), step) }

// String returns the path in the notation of validation errors.
func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			switch {
			case strings.ContainsAny(step, "./[]") || step == "":
				fmt.Fprintf(&b, "[%s]", step)
			case i > 0:
				b.WriteString("." + step)
			default:
				b.WriteString(step)
			}
		}
	}
	return b.String()
}

// pointer returns the path in the notation of JSON patches (RFC 6901).
func (p path) pointer() string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, step := range p {
		b.WriteString("/")
		switch step := step.(type) {
		case int:
			b.WriteString(strconv.Itoa(step))
		case string:
			b.WriteString(escape.Replace(step))
		}
	}
	return b.String()
}

// lookup returns the value at a path.
func lookup(value any, p path) (any, bool) {
	for _, step := range p {
		switch step := step.(type) {
		case int:
			list, ok := value.([]any)
			if !ok || step >= len(list) {
				return nil, false
			}
			value = list[step]
		case string:
			object, ok := value.(map[string]any)
			if !ok {
				return nil, false
			}
			if value, ok = object[step]; !ok {
				return nil, false
			}
		}
	}
	return value, true
}

// change sets the value at a path, or removes it.
type change struct {
	path   path
	remove bool
	value  any
}

func (c change) String() string {
	if c.remove {
		return c.path.String() + " removed"
	}
	return c.path.String() + " = " + short(c.value)
}

// apply applies the change to value, and reports whether its path exists. Use the result: a list
// that grows is a new one.
func (c change) apply(value any) (any, bool) { return set(value, c.path, c) }

func set(value any, rest path, c change) (any, bool) {
	if len(rest) == 0 {
		return runtime.DeepCopyJSONValue(c.value), true
	}
	last := len(rest) == 1
	switch step := rest[0].(type) {
	case string:
		return setKey(value, step, rest, last && c.remove, c)
	case int:
		return setIndex(value, step, rest, last && c.remove, c)
	}
	return value, false
}

func setKey(value any, key string, rest path, remove bool, c change) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return value, false
	}
	old, found := object[key]
	if remove {
		delete(object, key)
		return object, found
	}
	if !found && len(rest) > 1 {
		return value, false
	}
	changed, ok := set(old, rest[1:], c)
	if ok {
		object[key] = changed
	}
	return object, ok
}

func setIndex(value any, index int, rest path, remove bool, c change) (any, bool) {
	list, ok := value.([]any)
	if !ok || index > len(list) || index == len(list) && (remove || len(rest) > 1) {
		return value, false
	}
	if remove {
		return slices.Delete(list, index, index+1), true
	}
	if index == len(list) {
		return append(list, runtime.DeepCopyJSONValue(c.value)), true
	}
	changed, ok := set(list[index], rest[1:], c)
	if ok {
		list[index] = changed
	}
	return list, ok
}
