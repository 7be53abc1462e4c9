// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// formerKind is a kind whose definition was deleted.
type formerKind struct {
	graph.Resource
	// names are the names that kubectl accepts for it, without the group.
	names []string
}

// formerKinds returns the kinds whose definitions were deleted, as far as that is recorded, the
// latest first. If the history no longer has a definition, its kind is guessed from its name.
func (q *question) formerKinds(ctx context.Context) ([]formerKind, error) {
	requested, err := q.Records.Requested(ctx, 0)
	if err != nil {
		return nil, err
	}
	namespaced := map[schema.GroupResource]bool{}
	for _, record := range requested {
		namespaced[record.Resource] = namespaced[record.Resource] || record.Namespace != ""
	}
	var kinds []formerKind
	for _, record := range requested {
		if record.Resource != definitions {
			continue
		}
		then, err := q.History.At(ctx, definitions, "", record.Name, record.Revision-1)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		resource := schema.ParseGroupResource(record.Name)
		if err != nil || then.GetUID() != record.UID {
			kinds = append(kinds, guessedKind(resource, namespaced[resource]))
			continue
		}
		kinds = append(kinds, definedKind(resource, then))
	}
	return kinds, nil
}

// definedKind returns the kind that a definition defines.
func definedKind(resource schema.GroupResource, definition *unstructured.Unstructured) formerKind {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(definition.Object, path...)
		return value
	}
	k := formerKind{Resource: graph.Resource{
		GroupVersionResource: resource.WithVersion(storedVersion(definition)),
		Kind:                 text("spec", "names", "kind"), Namespaced: text("spec", "scope") == "Namespaced",
	}}
	short, _, _ := unstructured.NestedStringSlice(definition.Object, "spec", "names", "shortNames")
	k.names = append(short, resource.Resource, text("spec", "names", "singular"), strings.ToLower(k.Kind))
	return k
}

// storedVersion returns the storage version of a definition.
func storedVersion(definition *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["storage"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}

// guessedKind guesses a kind from its resource.
func guessedKind(resource schema.GroupResource, namespaced bool) formerKind {
	singular := singularOf(resource.Resource)
	return formerKind{
		Resource: graph.Resource{
			GroupVersionResource: resource.WithVersion(""), Namespaced: namespaced,
			Kind: strings.ToUpper(singular[:1]) + singular[1:],
		},
		names: []string{resource.Resource, singular},
	}
}

// singularOf guesses the singular of a plural.
func singularOf(plural string) string {
	if stem, ok := strings.CutSuffix(plural, "ies"); ok {
		return stem + "y"
	}
	for _, hissing := range []string{"s", "x", "z", "ch", "sh"} {
		if stem, ok := strings.CutSuffix(plural, hissing+"es"); ok {
			return stem + hissing
		}
	}
	return strings.TrimSuffix(plural, "s")
}

// isCalled reports whether a resource type as kubectl takes it matches the kind: by any of its
// names, alone, with its group, or with any version and its group.
func (k *formerKind) isCalled(text string) bool {
	name, group, qualified := strings.Cut(strings.ToLower(text), ".")
	return slices.Contains(k.names, name) && (!qualified || group == k.Group || strings.HasSuffix(group, "."+k.Group))
}

// formerly finds a kind whose definition was deleted, and for which is returns true.
func (q *question) formerly(ctx context.Context, is func(*formerKind) bool) (r graph.Resource, known bool, err error) {
	if !q.former.read {
		if q.former.kinds, err = q.formerKinds(ctx); err != nil {
			return graph.Resource{}, false, err
		}
		q.former.read = true
	}
	i := slices.IndexFunc(q.former.kinds, func(k formerKind) bool { return is(&k) })
	if i < 0 {
		return graph.Resource{}, false, nil
	}
	return q.former.kinds[i].Resource, true, nil
}

// servedOrFormer returns the resource of a kind that is served, or was served until its definition
// was deleted.
func (q *question) servedOrFormer(ctx context.Context, apiVersion, kind string) (graph.Resource, error) {
	r, refusal := q.served(apiVersion, kind)
	if refusal == nil {
		return r, nil
	}
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	r, known, err := q.formerly(ctx, func(k *formerKind) bool {
		return k.Group == gvk.Group && (k.Kind == gvk.Kind || slices.Contains(k.names, strings.ToLower(gvk.Kind)))
	})
	if err != nil || !known {
		return r, cmp.Or(err, refusal)
	}
	r.Version, r.Kind = gvk.Version, gvk.Kind
	return r, nil
}

// explained returns the resource of the object to explain.
func (q *question) explained(ctx context.Context, spec *ownership.OwnershipExplanationSpec) (graph.Resource, error) {
	if spec.Type == "" {
		return q.servedOrFormer(ctx, spec.Object.APIVersion, spec.Object.Kind)
	}
	r, known, err := q.formerly(ctx, func(k *formerKind) bool { return k.isCalled(spec.Type) })
	switch {
	case err != nil:
		return r, err
	case !known:
		return r, apierrors.NewBadRequest(fmt.Sprintf("the cluster has no resource type %q, and no deleted definition of that name is known", spec.Type))
	}
	// The kind may have been defined again, perhaps under another name.
	if now, served := q.resource(schema.GroupKind{Group: r.Group, Kind: r.Kind}); served && now.GroupResource() == r.GroupResource() {
		return now, nil
	}
	return r, nil
}
