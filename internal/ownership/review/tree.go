// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func validateTree(review *ownership.OwnershipTree) field.ErrorList {
	errs := validateObject(review.Spec.Object, field.NewPath("spec", "object"))
	if depth := review.Spec.Depth; depth != nil && *depth < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "depth"), *depth, "must be greater than or equal to 0"))
	}
	return errs
}

// family is the part of the graph that a tree shows.
type family struct {
	owners, objects []graph.Object
	waits           map[types.UID][]graph.Block
	known           map[types.UID]graph.Object
}

func (q *question) tree(ctx context.Context, spec *ownership.OwnershipTreeSpec) (ownership.OwnershipTreeStatus, error) {
	object, err := q.find(ctx, spec.Object)
	if err != nil {
		return ownership.OwnershipTreeStatus{}, err
	}
	f := q.family(object, spec.Depth)
	s := ownership.OwnershipTreeStatus{Object: referenceOf(object)}
	shown := map[types.UID]bool{}
	for _, o := range append(f.owners, f.objects...) {
		shown[o.UID] = q.access.mayGet(ctx, o.Resource, o.Namespace, o.Name)
		if !shown[o.UID] {
			s.Hidden++
		}
	}
	details, err := q.read(ctx, f.known, shown)
	if err != nil {
		return ownership.OwnershipTreeStatus{}, err
	}
	show := func(objects []graph.Object) []ownership.TreeObject {
		var out []ownership.TreeObject
		for _, o := range objects {
			// Do not show objects that were deleted since they were found in the graph.
			if detail, found := details[o.UID]; found {
				out = append(out, q.treeObject(ctx, o, detail, f))
			}
		}
		return out
	}
	s.Owners, s.Objects = show(f.owners), show(f.objects)
	return s, nil
}

// family copies a tree from the graph: the owners of an object, and the object with its dependents.
func (q *question) family(object graph.Object, depth *int32) family {
	f := family{waits: map[types.UID][]graph.Block{}, known: map[types.UID]graph.Object{}}
	q.Collector.View(func(g *graph.Graph) {
		up := walk(g, object, nil, func(o graph.Object) []types.UID {
			var owners []types.UID
			for _, owner := range o.Owners {
				if owner.Followed {
					owners = append(owners, owner.UID)
				}
			}
			return owners
		})
		f.owners = up[1:]
		f.objects = walk(g, object, depth, func(o graph.Object) []types.UID { return owned(g, o.UID) })
		for _, o := range append(up, f.objects...) {
			f.known[o.UID] = o
			f.waits[o.UID] = g.Waits(o.UID)
		}
		for _, blocks := range f.waits {
			for _, b := range blocks {
				if o, ok := g.Object(b.Dependent); ok {
					f.known[o.UID] = o
				}
			}
		}
	})
	return f
}

// owned returns the UIDs of the objects that an object owns. It ignores references that the
// collector does not follow, for example those to another namespace.
func owned(g *graph.Graph, id types.UID) []types.UID {
	return slices.DeleteFunc(g.Dependents(id), func(dependent types.UID) bool {
		o, _ := g.Object(dependent)
		return !slices.ContainsFunc(o.Owners, func(owner graph.Owner) bool { return owner.UID == id && owner.Followed })
	})
}

// walk returns from and the objects reachable by next, level by level, up to depth levels.
func walk(g *graph.Graph, from graph.Object, depth *int32, next func(graph.Object) []types.UID) []graph.Object {
	seen := map[types.UID]bool{from.UID: true}
	all := []graph.Object{from}
	for level := all; len(level) > 0 && (depth == nil || *depth > 0); {
		var below []graph.Object
		for _, o := range level {
			for _, id := range next(o) {
				if found, ok := g.Object(id); ok && !seen[id] {
					seen[id] = true
					below = append(below, found)
				}
			}
		}
		sortObjects(below)
		all, level = append(all, below...), below
		if depth != nil {
			rest := *depth - 1
			depth = &rest
		}
	}
	return all
}

func (q *question) treeObject(ctx context.Context, o graph.Object, d detail, f family) ownership.TreeObject {
	t := ownership.TreeObject{
		ObjectReference:   referenceOf(o),
		CreationTimestamp: d.created,
		Owners:            q.owners(ctx, o.Namespace, o.Owners),
		Finalizers:        o.Finalizers,
		Hold:              d.hold,
		Readiness:         d.readiness,
		Message:           d.message,
		ClusterPart:       d.part,
		WaitsFor:          q.blocks(ctx, f.known, f.waits[o.UID]),
	}
	if o.Deleting {
		t.DeletionTimestamp = d.deleted
	}
	return t
}

// detail is what a tree shows of an object besides its metadata.
type detail struct {
	created   metav1.Time
	deleted   *metav1.Time
	readiness ownership.Readiness
	message   string
	part      *ownership.ClusterPart
	hold      *ownership.Hold
}
