// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// groupGenerator creates the claims that PodGroups want from templates (KEP-5729).
type groupGenerator struct {
	*maker
}

func newGroupGenerator(env control.Env) *groupGenerator {
	return &groupGenerator{newMaker(env, schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"))}
}

// Reconcile creates the missing claims of a PodGroup and records their names.
func (g *groupGenerator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	group := &schedulingv1beta1.PodGroup{}
	if wants, err := g.read(ctx, req.NamespacedName, group); err != nil || !wants {
		return ctrl.Result{}, err
	}
	var statuses []schedulingv1beta1.PodGroupResourceClaimStatus
	for i := range group.Spec.ResourceClaims {
		wanted := &group.Spec.ResourceClaims[i]
		name, err := g.ensure(ctx, group, wanted)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("PodGroup %s: %w", req.NamespacedName, g.failed(group, wanted.Name, err))
		}
		if name != "" {
			statuses = append(statuses, schedulingv1beta1.PodGroupResourceClaimStatus{Name: wanted.Name, ResourceClaimName: &name})
		}
	}
	if len(statuses) == 0 {
		g.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err := patchStatuses(ctx, g.client, group.DeepCopy(), statuses); err != nil {
		return ctrl.Result{}, owned.IgnoreStale(fmt.Errorf("update PodGroup %s ResourceClaimStatuses: %w", req.NamespacedName, err))
	}
	return ctrl.Result{}, nil
}

// ensure returns the name of a claim that was generated for a PodGroup and is not recorded in its status,
// and creates the claim if it does not exist; "" if there is nothing to record.
func (g *groupGenerator) ensure(ctx context.Context, group *schedulingv1beta1.PodGroup, wanted *schedulingv1beta1.PodGroupResourceClaim) (string, error) {
	name, generated, err := resourceclaim.NameFromPodGroup(group, wanted)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", fmt.Errorf("checking for claim before creating it: %w", err)
	case name == nil || !generated:
		return "", nil
	default:
		key := client.ObjectKey{Namespace: group.Namespace, Name: *name}
		belongs := func(claim *resourcev1.ResourceClaim) error { return resourceclaim.IsForPodGroup(group, claim) }
		if exists, err := g.exists(ctx, key, belongs); err != nil || exists {
			return "", err
		}
	}
	return g.make(ctx, group, wanted.Name, *wanted.ResourceClaimTemplateName)
}

// recordedClaim returns the name of a generated claim in the status of a PodGroup, or "".
func recordedClaim(group *schedulingv1beta1.PodGroup, wanted string) string {
	for _, status := range group.Status.ResourceClaimStatuses {
		if status.Name == wanted && status.ResourceClaimName != nil {
			return *status.ResourceClaimName
		}
	}
	return ""
}
