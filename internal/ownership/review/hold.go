// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

// holdOf returns the hold that an object is on, or nil. The graph knows which objects are on hold;
// the annotation, which says why, is read from the API.
func (q *question) holdOf(ctx context.Context, o graph.Object) (*ownership.Hold, error) {
	if !o.Held || o.Deleting {
		return nil, nil
	}
	now, err := q.Metadata.Resource(o.GroupVersionResource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && now.UID != o.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return undelete.HoldOf(now, kindOfObject(o)), nil
}

func kindOfObject(o graph.Object) schema.GroupKind {
	return schema.GroupKind{Group: o.Group, Kind: o.Kind}
}

// isOnlyOf reports whether objects are checked only by one rule.
func (in *inspection) isOnlyOf(rule ownership.LintRule) bool {
	return len(in.spec.Rules) > 0 && !slices.ContainsFunc(in.spec.Rules, func(r ownership.LintRule) bool { return r != rule })
}

// hold reads why objects are on hold: one by one or, for many objects in one place, by a list.
func (in *inspection) hold(ctx context.Context, objects []*lint.Object) {
	if len(in.spec.Rules) > 0 && !slices.Contains(in.spec.Rules, ownership.RuleOnHold) {
		return
	}
	places := map[place]map[types.UID]*lint.Object{}
	for _, o := range objects {
		if !o.Held || o.Deleting || !in.selected[o.UID] {
			continue
		}
		p := place{o.Resource, o.Namespace}
		if places[p] == nil {
			places[p] = map[types.UID]*lint.Object{}
		}
		places[p][o.UID] = o
	}
	for p, held := range places {
		if len(held) > few {
			in.holdAll(ctx, p, held)
			continue
		}
		for _, o := range held {
			var err error
			if o.Hold, err = in.holdOf(ctx, o.Object); err != nil {
				in.warn("cannot read why %s %s is on hold: %v", o.Kind, o.Name, err)
			}
		}
	}
}

// holdAll reads the objects of a place page by page.
func (in *inspection) holdAll(ctx context.Context, p place, held map[types.UID]*lint.Object) {
	client := in.Metadata.Resource(p.GroupVersionResource).Namespace(p.namespace)
	for options := (metav1.ListOptions{Limit: listLimit}); ; {
		list, err := client.List(ctx, options)
		if err != nil {
			in.warn("cannot read why %s are on hold: %v", p.GroupResource(), err)
			return
		}
		for i := range list.Items {
			if o := held[list.Items[i].UID]; o != nil {
				o.Hold = undelete.HoldOf(&list.Items[i], kindOfObject(o.Object))
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
	}
}
