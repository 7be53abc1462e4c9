// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// adopters returns a request for each StatefulSet that selects an orphaned pod or revision.
func (r *reconciler) adopters(ctx context.Context, orphan client.Object) []reconcile.Request {
	return owned.Selecting(orphan, r.setsBeside(ctx, orphan), func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector })
}

// claimants returns a request for each StatefulSet that has a claim of this name.
func (r *reconciler) claimants(ctx context.Context, claim client.Object) []reconcile.Request {
	var out []reconcile.Request
	sets := r.setsBeside(ctx, claim)
	for i := range sets {
		if hasClaim(&sets[i], claim.GetName()) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets[i])})
		}
	}
	return out
}

func hasClaim(set *appsv1.StatefulSet, name string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		if _, ok := parseOrdinal(set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name, name); ok {
			return true
		}
	}
	return false
}

// setsBeside returns the StatefulSets in the namespace of an object.
func (r *reconciler) setsBeside(ctx context.Context, obj client.Object) []appsv1.StatefulSet {
	found := &appsv1.StatefulSetList{}
	if err := r.client.List(ctx, found, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the StatefulSets that an object may affect", "object", klog.KObj(obj))
		return nil
	}
	return found.Items
}
