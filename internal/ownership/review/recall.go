// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// recall reads from the store's history the references that objects without an owner had when they
// were created. The graph knows only references that were lost since the process started.
func (in *inspection) recall(ctx context.Context) {
	if len(in.spec.Rules) > 0 && !slices.Contains(in.spec.Rules, ownership.RuleLostReference) {
		return
	}
	existing := map[types.UID]*graph.Object{}
	free := map[place]map[string]*graph.Object{}
	for i := range in.objects {
		o := &in.objects[i]
		existing[o.UID] = o
		if len(o.Owners) > 0 || len(o.Lost) > 0 || o.Deleting {
			continue
		}
		p := place{o.Resource, o.Namespace}
		if free[p] == nil {
			free[p] = map[string]*graph.Object{}
		}
		free[p][o.Name] = o
	}
	for p, objects := range free {
		in.recallAt(ctx, p, objects, existing)
	}
}

// recallAt sets the lost references to live owners for objects in one place.
func (in *inspection) recallAt(ctx context.Context, p place, objects map[string]*graph.Object, existing map[types.UID]*graph.Object) {
	wanted := func(_, name string) bool { return objects[name] != nil }
	for first, err := range in.History.First(ctx, p.GroupResource(), p.namespace, wanted) {
		switch {
		case apierrors.IsBadRequest(err):
			return // An aggregated API server stores the resource.
		case err != nil:
			in.warn("former references of %s are not known: %v", p.GroupResource(), err)
			return
		}
		o := objects[first.GetName()]
		if o.UID != first.GetUID() {
			continue
		}
		o.Lost = slices.DeleteFunc(first.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			owner := existing[ref.UID]
			return owner == nil || owner.Deleting
		})
	}
}
