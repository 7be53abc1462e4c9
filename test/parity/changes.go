// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// focus is the part of the object that a subresource changes.
var focus = map[string]path{
	"status":              {"status"},
	"approval":            {"status"},
	"finalize":            {"spec"},
	"ephemeralcontainers": {"spec", "ephemeralContainers"},
	"resize":              {"spec"},
}

// changes sends updates, patches and subresource requests for a stored object.
func (t *trial) changes(ctx context.Context, o *stored, among int) error {
	if t.resource.serves("update") || t.resource.serves("patch") {
		if err := t.updates(ctx, o, t.n/2/among); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(t.resource.subresources) {
		if err := t.subresource(ctx, o, name, t.n/4/among); err != nil {
			return err
		}
	}
	return nil
}

// updates sends mutations of the object itself. The server ignores those of the status, so a few of
// them suffice.
func (t *trial) updates(ctx context.Context, o *stored, n int) error {
	writable := func(p path) bool {
		return p[0] == "status" && t.random.IntN(20) > 0 || managed(p)
	}
	pairs := t.rewrites(o, o.path, "", t.schemas.mutations(t.schema, o.upstream, writable), n)
	applied := t.schemas.mutations(t.schema, o.object, writable)
	for _, m := range sample(applied, n/4, t.random) {
		if p, ok := t.application(o, o.path, m); ok {
			pairs = append(pairs, p)
		}
	}
	_, err := t.run(ctx, pairs...)
	return err
}

// managed reports whether a path is below a field that only the server writes.
func managed(p path) bool {
	return len(p) > 1 && p[0] == "metadata" && (p[1] == "managedFields" || p[1] == "selfLink")
}

// subresource tries a subresource: those that return the object itself, scale, and those with
// bodies.
func (t *trial) subresource(ctx context.Context, o *stored, name string, n int) error {
	api := t.resource.subresources[name]
	where := o.path + "/" + name
	updates := slices.Contains(api.Verbs, "update") || slices.Contains(api.Verbs, "patch")
	switch {
	case name == "scale" && updates:
		return t.scale(ctx, o, where, n)
	case len(connections[name]) > 0:
		return t.connect(ctx, o, name)
	case api.Kind == t.resource.api.Kind && updates:
		return t.facet(ctx, o, where, name, n)
	}
	for _, body := range t.bodies {
		if body.subresource != name || body.name() != o.name() {
			continue
		}
		if err := t.actions(ctx, o, where, body, n); err != nil {
			return err
		}
	}
	return nil
}

// facet sends mutations through a subresource that returns the whole object. Three of four change
// the part that the subresource is for.
func (t *trial) facet(ctx context.Context, o *stored, where string, name string, n int) error {
	all := t.schemas.mutations(t.schema, o.upstream, managed)
	inside := func(c change) bool { return within(c.path, focus[name]) }
	of := slices.DeleteFunc(slices.Clone(all), func(c change) bool { return !inside(c) })
	other := slices.DeleteFunc(all, inside)
	pairs := t.rewrites(o, where, name, of, n*3/4)
	pairs = append(pairs, t.rewrites(o, where, name, other, n/4)...)
	_, err := t.run(ctx, pairs...)
	return err
}

// within reports whether p is root or below it.
func within(p, root path) bool {
	return len(p) >= len(root) && slices.Equal(p[:len(root)], root)
}

// scale tries the scale subresource, which returns another kind of object.
func (t *trial) scale(ctx context.Context, o *stored, where string, n int) error {
	gvk := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	node, err := t.schemas.of(ctx, t.resource.gv, gvk)
	if err != nil || node == nil {
		return err
	}
	outcomes, err := t.run(ctx, o.same("scale of "+o.name(), request{Method: http.MethodGet, Path: where}))
	if err != nil || outcomes[0].Upstream.Code != http.StatusOK || outcomes[0].Kindred.Code != http.StatusOK {
		return err
	}
	shown := *o
	shown.upstream, shown.kindred = outcomes[0].Upstream.Object, outcomes[0].Kindred.Object
	_, err = t.run(ctx, t.rewrites(&shown, where, "scale", t.schemas.mutations(node, shown.upstream, managed), n)...)
	return err
}

// actions posts a body, and mutations of it, to a subresource.
func (t *trial) actions(ctx context.Context, o *stored, where string, body manifest, n int) error {
	node, err := t.schemas.of(ctx, t.resource.gv, body.gvk())
	if err != nil || node == nil {
		return err
	}
	pairs := []pair{o.same("post "+body.subresource+" of "+o.name(), post(query(where, dryRun), body.object))}
	for _, m := range sample(t.schemas.mutations(node, body.object, managed), n, t.random) {
		if object, ok := m.apply(runtime.DeepCopyJSON(body.object)); ok {
			pairs = append(pairs, o.same("post "+body.subresource+" of "+o.name()+" with "+m.String(), post(query(where, dryRun, t.validation(m)), object)))
		}
	}
	_, err = t.run(ctx, pairs...)
	return err
}

// rewrites returns n mutations, alternately as an update and as each kind of patch.
func (t *trial) rewrites(o *stored, where, subresource string, changes []change, n int) []pair {
	ways := []func(*trial, *stored, string, mutation) (pair, bool){(*trial).put, (*trial).put, (*trial).jsonPatch, (*trial).mergePatch, (*trial).strategicPatch}
	var pairs []pair
	for i, m := range sample(changes, n, t.random) {
		p, ok := ways[i%len(ways)](t, o, where, m)
		if !ok {
			continue
		}
		if subresource != "" {
			p.What = subresource + ": " + p.What
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// both returns a pair whose bodies are made from the objects that each server has stored.
func (o *stored) both(what, method, where, contentType string, body func(object map[string]any) (any, bool)) (pair, bool) {
	upstream, ok := body(withoutManagers(o.upstream))
	if !ok {
		return pair{}, false
	}
	kindred, ok := body(withoutManagers(o.kindred))
	if !ok {
		// Kindred's object has no such field, which was reported when it was read. Send Kindred
		// what upstream is sent.
		kindred = upstream
	}
	p := pair{What: what, names: o.names}
	p.Both = request{Method: method, Path: where, ContentType: contentType, Body: encode(upstream)}
	p.Ours = request{Method: method, Path: where, ContentType: contentType, Body: o.names.restore(encode(kindred))}
	return p, true
}

// withoutManagers returns a copy of an object without its managed fields: clients leave them out,
// and the server keeps them.
func withoutManagers(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	return object
}

func (t *trial) put(o *stored, where string, m mutation) (pair, bool) {
	return o.both("update "+o.name()+" with "+m.String(), http.MethodPut, query(where, dryRun, t.validation(m)), contentJSON,
		func(object map[string]any) (any, bool) { return m.apply(object) })
}

func (t *trial) jsonPatch(o *stored, where string, m mutation) (pair, bool) {
	return o.both("JSON patch of "+o.name()+" with "+m.String(), http.MethodPatch, query(where, dryRun, t.validation(m)), contentJSONPatch,
		func(object map[string]any) (any, bool) { return m.jsonPatch(object), true })
}

func (t *trial) mergePatch(o *stored, where string, m mutation) (pair, bool) {
	return o.both("merge patch of "+o.name()+" with "+m.String(), http.MethodPatch, query(where, dryRun, t.validation(m)), contentMerge,
		func(object map[string]any) (any, bool) { return m[0].mergePatch(object) })
}

func (t *trial) strategicPatch(o *stored, where string, m mutation) (pair, bool) {
	return o.both("strategic patch of "+o.name()+" with "+m.String(), http.MethodPatch, query(where, dryRun, t.validation(m)), contentStrategic,
		func(object map[string]any) (any, bool) { return m[0].strategicPatch(t.schemas, t.schema, object) })
}

// application returns a server-side apply of the manifest with a mutation, with force every other
// time. Without force, changing a field of the creator is a conflict.
func (t *trial) application(o *stored, where string, m mutation) (pair, bool) {
	force := "force=false"
	if t.random.IntN(2) == 0 {
		force = "force=true"
	}
	object, ok := m.apply(runtime.DeepCopyJSON(o.object))
	if !ok {
		return pair{}, false
	}
	return o.same("apply "+o.name()+" with "+m.String(), request{
		Method: http.MethodPatch, Path: query(where, dryRun, "fieldManager=applier", force, t.validation(m)),
		ContentType: contentApply, Body: encode(object),
	}), true
}
