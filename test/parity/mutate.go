// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// unknownField is a field that no schema has.
const unknownField = "parityUnknown"

// mutation is one way to change an object: usually one change, sometimes two.
type mutation []change

func (m mutation) String() string {
	var all []string
	for _, c := range m {
		all = append(all, c.String())
	}
	return strings.Join(all, ", ")
}

// unknown reports whether the mutation sets an unknown field.
func (m mutation) unknown() bool {
	return slices.ContainsFunc(m, func(c change) bool { return strings.Contains(c.String(), unknownField) })
}

// apply applies all changes to value, which it may modify.
func (m mutation) apply(value any) (any, bool) {
	for _, c := range m {
		var ok bool
		if value, ok = c.apply(value); !ok {
			return value, false
		}
	}
	return value, true
}

// mutations walks value with its schema and collects all possible changes, in a fixed order. It
// leaves out paths for which skip returns true.
func (s *schemas) mutations(n *schemaNode, value any, skip func(path) bool) []change {
	w := &walker{schemas: s, skip: skip}
	w.walk(s.resolve(n), value, nil)
	return w.all
}

type walker struct {
	schemas *schemas
	skip    func(path) bool
	all     []change
}

func (w *walker) add(c change) { w.all = append(w.all, c) }

func (w *walker) set(p path, value any) { w.add(change{path: p, value: value}) }

func (w *walker) walk(n *schemaNode, value any, p path) {
	switch value := value.(type) {
	case map[string]any:
		w.object(n, value, p)
	case []any:
		w.list(n, value, p)
	}
}

// object tries other values for each property, and adds missing ones.
func (w *walker) object(n *schemaNode, value map[string]any, p path) {
	w.set(p.to(unknownField), "x")
	for _, key := range sortedKeys(value) {
		w.visit(w.schemas.child(n, key), value[key], p.to(key))
	}
	for _, key := range sortedKeys(n.Properties) {
		if _, found := value[key]; !found && !w.skip(p.to(key)) {
			for _, candidate := range w.schemas.candidates(n.Properties[key], key) {
				w.set(p.to(key), candidate)
			}
		}
	}
	if n.AdditionalProperties != nil {
		example := w.schemas.example(n.AdditionalProperties, "", 0)
		for _, key := range []string{"a", "example.com/a", "Bad Key!", "", "/a", "a/b/c", strings.Repeat("k", 70), "kubernetes.io/a"} {
			w.set(p.to(key), example)
		}
	}
}

// visit tries other values for an existing property, and then mutates what is below it.
func (w *walker) visit(n *schemaNode, value any, p path) {
	if w.skip(p) {
		return
	}
	w.add(change{path: p, remove: true})
	for _, candidate := range w.schemas.candidates(n, lastKey(p)) {
		w.set(p, candidate)
	}
	if text, ok := value.(string); ok {
		if upper := strings.ToUpper(text); upper != text {
			w.set(p, upper)
		}
		w.set(p, text+"-x")
	}
	w.walk(n, value, p)
}

// list tries a longer list, a shorter one, and one with a duplicate item; then it mutates the first
// and the last item.
func (w *walker) list(n *schemaNode, value []any, p path) {
	if len(value) == 0 {
		return
	}
	item := w.schemas.child(n, 0)
	end := p.to(len(value))
	w.set(end, value[0])
	w.set(end, w.schemas.example(item, lastKey(p), 0))
	w.set(end, map[string]any{})
	for _, candidate := range item.partial(w.schemas, lastKey(p)) {
		w.set(end, candidate)
	}
	if len(value) > 1 {
		w.set(p, []any{value[len(value)-1], value[0]})
	}
	w.visit(item, value[0], p.to(0))
	if last := len(value) - 1; last > 0 {
		w.visit(item, value[last], p.to(last))
	}
}

// lastKey returns the last key of a path: the name of the field, or that of the list for an item.
func lastKey(p path) string {
	for _, step := range slices.Backward(p) {
		if key, ok := step.(string); ok {
			return key
		}
	}
	return ""
}

const (
	// decay is the factor by which a change is less likely for each level of depth, so that the
	// kind's own fields are not rare among those of a pod template.
	decay = 0.75
	// doubled is the share of mutations with two changes.
	doubled = 0.1
)

// sample draws n mutations by weight (Efraimidis and Spirakis): each field has a weight that
// depends on its depth, and its changes share it.
func sample(all []change, n int, r *rand.Rand) []mutation {
	perPath := map[string]int{}
	for _, c := range all {
		perPath[c.path.String()]++
	}
	type keyed struct {
		change
		key float64
	}
	drawn := make([]keyed, len(all))
	for i, c := range all {
		weight := math.Pow(decay, float64(len(c.path))) / math.Sqrt(float64(perPath[c.path.String()]))
		drawn[i] = keyed{c, math.Log(r.Float64()) / weight}
	}
	slices.SortStableFunc(drawn, func(a, b keyed) int { return cmp.Compare(b.key, a.key) })
	var picked []mutation
	for i := 0; i < len(drawn) && len(picked) < n; i++ {
		m := mutation{drawn[i].change}
		if i+1 < len(drawn) && r.Float64() < doubled {
			i++
			m = append(m, drawn[i].change)
		}
		picked = append(picked, m)
	}
	return picked
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
