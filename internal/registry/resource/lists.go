// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// rule checks a value at a path.
type rule[T any] func(c *check.Checker, value T, path *field.Path)

// limit is how many items a list may have. If it is declared, k8s.io/api declares it
// too, as well as that the keys of a set are unique.
type limit struct {
	most     int
	declared bool
}

const unlimited = math.MaxInt

func declared(most int) limit { return limit{most, true} }
func own(most int) limit      { return limit{most, false} }

// checker returns the checker to which errors about the list itself go.
func (l limit) checker(c *check.Checker) *check.Checker {
	if l.declared {
		return c.Declared()
	}
	return c
}

// list checks each item, and reports whether it did: the items of a list that is too
// long are skipped, so that long lists cost nothing.
func list[T any](c *check.Checker, items []T, limit limit, path *field.Path, validate rule[T]) bool {
	if len(items) > limit.most {
		limit.checker(c).Add(field.TooMany(path, len(items), limit.most).WithOrigin("maxItems"))
		return false
	}
	for i, item := range items {
		validate(c, item, path.Index(i))
	}
	return true
}

// set is list for items with unique keys.
func set[T any, K comparable](c *check.Checker, items []T, limit limit, key func(T) K, path *field.Path, validate rule[T]) {
	if !list(c, items, limit, path, validate) {
		return
	}
	seen := sets.Set[K]{}
	for i, item := range items {
		check.Unique(limit.checker(c), path.Index(i), seen, key(item))
	}
}

// itself is the key of a string.
func itself(s string) string { return s }

// dictionary checks the keys of a map, which are reported at the map itself, and its
// values, in the order of the keys.
func dictionary[K ~string, T any](c *check.Checker, m map[K]T, longest int, path *field.Path, validateKey rule[K], validate rule[T]) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		validateKey(c, key, path)
		validate(c, m[key], path.Key(shortened(string(key), longest)))
	}
}

// shortened cuts the middle out of a string that is too long for a message.
func shortened(s string, longest int) string {
	const dots = "..."
	if len(s) <= longest {
		return s
	}
	rest := longest - len(dots)
	return s[:(rest+1)/2] + dots + s[len(s)-rest/2:]
}
