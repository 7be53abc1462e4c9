// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

var (
	claims            = schema.GroupResource{Resource: "persistentvolumeclaims"}
	persistentVolumes = graph.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Kind: "PersistentVolume"}
)

// volumes returns the volumes of the claims that would be deleted, by the UID of the claim.
func (p *prediction) volumes(ctx context.Context) (map[types.UID]*ownership.ClaimedVolume, error) {
	if !slices.ContainsFunc(p.forecasts, isDeletedClaim) {
		return nil, nil
	}
	// Any state that the server has cached is recent enough.
	list, err := p.Objects.Resource(persistentVolumes.GroupVersionResource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	byClaim := map[types.UID]*unstructured.Unstructured{}
	for i := range list.Items {
		uid, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "claimRef", "uid")
		byClaim[types.UID(uid)] = &list.Items[i]
	}
	volumes := map[types.UID]*ownership.ClaimedVolume{}
	for _, f := range p.forecasts {
		if v := byClaim[f.UID]; v != nil && isDeletedClaim(f) {
			volumes[f.UID] = p.claimed(ctx, v)
		}
	}
	return volumes, nil
}

func isDeletedClaim(f graph.Forecast) bool {
	return f.GroupResource() == claims && f.Fate == graph.Deleted
}

// claimed describes a volume, as far as the caller may read it. Its name is known from the claim.
func (p *prediction) claimed(ctx context.Context, v *unstructured.Unstructured) *ownership.ClaimedVolume {
	claimed := &ownership.ClaimedVolume{Name: v.GetName()}
	if p.access.mayGet(ctx, persistentVolumes, "", v.GetName()) {
		policy, _, _ := unstructured.NestedString(v.Object, "spec", "persistentVolumeReclaimPolicy")
		claimed.ReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(policy)
	}
	return claimed
}
