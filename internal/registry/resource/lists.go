// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// rule checks a value at a path.
type rule[T any] func(value T, path *field.Path) field.ErrorList

// limit is how many items a list may have. A declared one is declared by
// k8s.io/api too, as is that the items of a set differ: the strategy reports such
// an error once.
type limit struct {
	most     int
	declared bool
}

const unlimited = math.MaxInt

func declared(most int) limit { return limit{most, true} }
func own(most int) limit      { return limit{most, false} }

func (l limit) mark(err *field.Error) *field.Error {
	if l.declared {
		return err.MarkCoveredByDeclarative()
	}
	return err
}

// tooMany says that a list is too long; its items are not looked at then, so that
// long lists cost nothing.
func (l limit) tooMany(size int, path *field.Path) field.ErrorList {
	if size <= l.most {
		return nil
	}
	return field.ErrorList{l.mark(field.TooMany(path, size, l.most).WithOrigin("maxItems"))}
}

// list checks each item.
func list[T any](items []T, limit limit, path *field.Path, check rule[T]) field.ErrorList {
	errs := limit.tooMany(len(items), path)
	if len(errs) > 0 {
		return errs
	}
	for i, item := range items {
		errs = append(errs, check(item, path.Index(i))...)
	}
	return errs
}

// set is a list whose items have keys that differ.
func set[T any, K comparable](items []T, limit limit, key func(T) K, path *field.Path, check rule[T]) field.ErrorList {
	if errs := limit.tooMany(len(items), path); len(errs) > 0 {
		return errs
	}
	errs := list(items, limit, path, check)
	seen := sets.New[K]()
	for i, item := range items {
		if seen.Has(key(item)) {
			errs = append(errs, limit.mark(field.Duplicate(path.Index(i), key(item))))
		}
		seen.Insert(key(item))
	}
	return errs
}

// itself is the key of what has no other.
func itself(s string) string { return s }

// dictionary checks keys, which are reported at the map itself, and what they stand
// for. They come in order, so that errors do too.
func dictionary[K ~string, T any](m map[K]T, longest int, path *field.Path, checkKey rule[K], check rule[T]) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(m)) {
		errs = append(errs, checkKey(key, path)...)
		errs = append(errs, check(m[key], path.Key(shortened(string(key), longest)))...)
	}
	return errs
}

// shortened leaves out the middle of what is too long for a message.
func shortened(s string, longest int) string {
	const dots = "..."
	if len(s) <= longest {
		return s
	}
	rest := longest - len(dots)
	return s[:(rest+1)/2] + dots + s[len(s)-rest/2:]
}
