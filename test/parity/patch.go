// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "k8s.io/apimachinery/pkg/runtime"

// jsonPatch returns a mutation of object as a JSON patch (RFC 6902).
func (m mutation) jsonPatch(object map[string]any) []any {
	var operations []any
	for _, c := range m {
		operation := map[string]any{"path": c.path.pointer()}
		_, found := lookup(object, c.path)
		switch {
		case c.remove:
			operation["op"] = "remove"
		case found:
			operation["op"], operation["value"] = "replace", c.value
		default:
			operation["op"], operation["value"] = "add", c.value
		}
		operations = append(operations, operation)
	}
	return operations
}

// mergePatch returns a change of object as a merge patch (RFC 7386), which replaces lists as a
// whole. It may modify object.
func (c change) mergePatch(object map[string]any) (any, bool) {
	changed, ok := c.apply(runtime.DeepCopyJSONValue(object))
	if !ok {
		return nil, false
	}
	return nest(c.path, func(i int) (any, bool) {
		_, index := next(c.path, i).(int)
		switch {
		case i == len(c.path) && c.remove:
			return nil, true
		case i == len(c.path) || index:
			value, _ := lookup(changed, c.path[:i])
			return value, true
		}
		return nil, false
	}), true
}

// strategicPatch returns a change of object as a strategic merge patch. Items of a list with a
// merge key are identified by it.
func (c change) strategicPatch(s *schemas, n *schemaNode, object map[string]any) (any, bool) {
	changed, ok := c.apply(runtime.DeepCopyJSONValue(object))
	if !ok {
		return nil, false
	}
	return c.strategic(s, s.resolve(n), object, changed, 0), true
}

func (c change) strategic(s *schemas, n *schemaNode, old, changed any, depth int) any {
	if depth == len(c.path) {
		if c.remove {
			return nil
		}
		return c.value
	}
	step := c.path[depth]
	child := s.child(n, step)
	below, _ := lookup(changed, path{step})
	if key, ok := step.(string); ok {
		was, _ := lookup(old, path{step})
		return map[string]any{key: c.strategic(s, child, was, below, depth+1)}
	}
	was, found := lookup(old, path{step})
	merge, named := lookup(was, path{n.MergeKey})
	last := depth == len(c.path)-1
	switch {
	case n.MergeKey == "" || !found && !last:
		return changed
	case !found:
		return []any{c.value}
	case !named:
		return changed
	case last && c.remove:
		return []any{map[string]any{n.MergeKey: merge, "$patch": "delete"}}
	case last:
		return []any{c.value}
	}
	item, ok := c.strategic(s, child, was, below, depth+1).(map[string]any)
	if !ok {
		return changed
	}
	if _, found := item[n.MergeKey]; !found {
		item[n.MergeKey] = merge
	}
	return []any{item}
}

// nest builds objects along a path, to the depth at which end returns a value.
func nest(p path, end func(depth int) (any, bool)) any {
	var below func(depth int) any
	below = func(depth int) any {
		if value, ok := end(depth); ok {
			return value
		}
		return map[string]any{p[depth].(string): below(depth + 1)}
	}
	return below(0)
}

// next returns the step after the first i, nil at the end.
func next(p path, i int) any {
	if i < len(p) {
		return p[i]
	}
	return nil
}
