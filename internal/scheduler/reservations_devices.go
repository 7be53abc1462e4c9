// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// writeDevices allocates the ResourceClaims of a pod and reserves them for it. After an error it
// returns what was written.
func (s *Scheduler) writeDevices(ctx context.Context, pod *model.Pod, plan *model.DevicePlan) (written, error) {
	var objects written
	for i := range plan.Claims {
		claim, err := s.reserveClaim(ctx, pod, &plan.Claims[i])
		if err != nil {
			return objects, err
		}
		objects = append(objects, claim)
	}
	if plan.Extended == nil {
		return objects, nil
	}
	claim, err := s.writeExtended(ctx, pod, plan.Extended)
	if claim != nil {
		objects = append(objects, claim)
	}
	return objects, err
}

// writeExtended creates and allocates the claim for a pod's extended resources, and tells the node
// agent in the pod's status which container uses which request. After an error it returns the claim
// if it was created.
func (s *Scheduler) writeExtended(ctx context.Context, pod *model.Pod, plan *model.ExtendedPlan) (*resourcev1.ResourceClaim, error) {
	created, err := s.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, plan.Claim, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources %s: %w", klog.KRef(pod.Namespace, plan.Claim.GenerateName), err)
	}
	claim, err := s.reserveClaim(ctx, pod, &model.ClaimPlan{Claim: created, Allocation: plan.Allocation})
	if err != nil {
		return created, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"extendedResourceClaimStatus": v1.PodExtendedResourceClaimStatus{
			RequestMappings: plan.Mappings, ResourceClaimName: claim.Name,
		}},
	})
	if err == nil {
		err = s.patchStatus(ctx, pod.Pod, patch)
	}
	if err != nil {
		return claim, fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
	}
	return claim, nil
}

// reserveClaim writes a claim's allocation, if it is not allocated, and the pod as its user. If other
// clients have changed the claim, it is tried with the new version.
func (s *Scheduler) reserveClaim(ctx context.Context, pod *model.Pod, plan *model.ClaimPlan) (*resourcev1.ResourceClaim, error) {
	claim, fresh := plan.Claim, true
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !fresh {
			now, err := s.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("get updated claim %s after conflict: %w", klog.KObj(claim), err)
			}
			claim = now
		}
		fresh = false
		now, err := s.writeClaim(ctx, pod, claim.DeepCopy(), plan.Allocation)
		if err == nil {
			claim = now
		}
		return err
	})
	return claim, err
}

func (s *Scheduler) writeClaim(ctx context.Context, pod *model.Pod, claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	claims := s.Client.ResourceV1().ResourceClaims(claim.Namespace)
	name := klog.KObj(claim)
	what := "reservation"
	switch {
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Errorf("claim %s got deleted in the meantime", name)
	case allocation == nil && claim.Status.Allocation == nil:
		return nil, fmt.Errorf("claim %s got deallocated elsewhere in the meantime", name)
	case allocation != nil && claim.Status.Allocation != nil:
		return nil, fmt.Errorf("claim %s got allocated elsewhere in the meantime", name)
	case allocation != nil:
		what = "allocation and reservation"
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
			now, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
			if err != nil {
				return nil, fmt.Errorf("add finalizer to claim %s: %w", name, err)
			}
			claim = now
		}
		claim.Status.Allocation = allocation.DeepCopy()
	}
	if claim.Status.Allocation.AllocationTimestamp == nil {
		now := metav1.NewTime(s.Clock.Now())
		claim.Status.Allocation.AllocationTimestamp = &now
	}
	if !resourceclaim.IsReservedForPod(pod.Pod, claim, false) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
	}
	now, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add %s to claim %s: %w", what, name, err)
	}
	return now, nil
}

// unreserve removes a pod as the user of the ResourceClaims of a reservation that has failed. The
// claims stay allocated, for the next attempt.
func (s *Scheduler) unreserve(ctx context.Context, pod *model.Pod, plan *model.DevicePlan) {
	if plan.Extended != nil {
		s.deleteExtended(ctx, plan.Extended.Claim)
	}
	for _, planned := range plan.Claims {
		claim := planned.Claim
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": claim.UID},
			"status":   map[string]any{"reservedFor": []map[string]any{{"$patch": "delete", "uid": pod.UID}}},
		})
		if err != nil {
			continue // cannot happen: strings always marshal
		}
		claims := s.Client.ResourceV1().ResourceClaims(claim.Namespace)
		_, err = claims.Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !isGone(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot end the reservation of a ResourceClaim", "claim", klog.KObj(claim), "pod", klog.KObj(pod.Pod))
		}
	}
}

// deleteExtended deletes a claim for extended resources, if it was created.
func (s *Scheduler) deleteExtended(ctx context.Context, claim *resourcev1.ResourceClaim) {
	if claim.Name == "" {
		return
	}
	claims := s.Client.ResourceV1().ResourceClaims(claim.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(name string) bool { return name == resourcev1.Finalizer })
		_, err = claims.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err == nil {
		err = claims.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	}
	if err != nil && !isGone(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot delete the claim for extended resources", "claim", klog.KObj(claim))
	}
}

// deallocate removes an allocation that keeps a pod from all nodes. If the claim has changed, its
// watch has the pod tried again.
func (s *Scheduler) deallocate(ctx context.Context, claim *resourcev1.ResourceClaim) {
	if model.IsExtended(claim) {
		s.deleteExtended(ctx, claim)
		return
	}
	claim = claim.DeepCopy()
	claim.Status.ReservedFor, claim.Status.Allocation, claim.Status.Devices = nil, nil, nil
	_, err := s.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil && !isGone(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot remove an allocation", "claim", klog.KObj(claim))
	}
}
