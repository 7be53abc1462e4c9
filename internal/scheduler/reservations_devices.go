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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// writeDevices allocates the ResourceClaims of a pod and reserves them for it or its PodGroup. After an
// error it returns what was written.
func (s *Scheduler) writeDevices(ctx context.Context, pod *model.Pod, plan *model.DevicePlan) (written, error) {
	var objects written
	for i := range plan.Claims {
		claim, err := s.reserveClaim(ctx, &plan.Claims[i])
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
	user := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
	claim, err := s.reserveClaim(ctx, &model.ClaimPlan{Claim: created, Allocation: plan.Allocation, User: user})
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

// reserveClaim writes a claim's allocation, if it is not allocated, and its user. If other clients have
// changed the claim, it is tried with the new version.
func (s *Scheduler) reserveClaim(ctx context.Context, plan *model.ClaimPlan) (*resourcev1.ResourceClaim, error) {
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
		now, err := s.writeClaim(ctx, claim.DeepCopy(), plan)
		if err == nil {
			claim = now
		}
		return err
	})
	return claim, err
}

func (s *Scheduler) writeClaim(ctx context.Context, claim *resourcev1.ResourceClaim, plan *model.ClaimPlan) (*resourcev1.ResourceClaim, error) {
	claims := s.Client.ResourceV1().ResourceClaims(claim.Namespace)
	name := klog.KObj(claim)
	allocation := plan.Allocation
	if claim.DeletionTimestamp == nil && isAllocation(claim.Status.Allocation, allocation) {
		// Another pod of the group has written it.
		allocation = nil
		if isUser(claim, plan.User.UID) {
			return claim, nil
		}
	}
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
	if !isUser(claim, plan.User.UID) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, plan.User)
	}
	now, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add %s to claim %s: %w", what, name, err)
	}
	return now, nil
}

// isAllocation reports whether a claim has an allocation that was decided. The time is set when it is
// written.
func isAllocation(has, decided *resourcev1.AllocationResult) bool {
	if has == nil || decided == nil {
		return false
	}
	has, decided = has.DeepCopy(), decided.DeepCopy()
	has.AllocationTimestamp, decided.AllocationTimestamp = nil, nil
	return equality.Semantic.DeepEqual(has, decided)
}

// unreserve removes a pod as the user of the ResourceClaims of a reservation that has failed. The
// claims stay allocated, for the next attempt, and reserved for the PodGroup, for its other pods.
func (s *Scheduler) unreserve(ctx context.Context, pod *model.Pod, plan *model.DevicePlan) {
	if plan.Extended != nil {
		s.deleteExtended(ctx, plan.Extended.Claim)
	}
	for _, planned := range plan.Claims {
		if planned.User.UID == pod.UID {
			s.endReservation(ctx, planned.Claim, pod.UID)
		}
	}
}

// endReservation removes a user of a claim, and returns what it has written, or nil.
func (s *Scheduler) endReservation(ctx context.Context, claim *resourcev1.ResourceClaim, user types.UID) *resourcev1.ResourceClaim {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"reservedFor": []map[string]any{{"$patch": "delete", "uid": user}}},
	})
	if err != nil {
		return nil // cannot happen: strings always marshal
	}
	claims := s.Client.ResourceV1().ResourceClaims(claim.Namespace)
	now, err := claims.Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !isGone(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot end the reservation of a ResourceClaim", "claim", klog.KObj(claim), "user", user)
	}
	if err != nil {
		return nil
	}
	return now
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

// deallocate removes an allocation that keeps a pod or a group from all nodes. If the claim has changed, its
// watch has the pod tried again.
func (s *Scheduler) deallocate(ctx context.Context, claim *resourcev1.ResourceClaim) {
	if model.IsExtended(claim) {
		s.deleteExtended(ctx, claim)
		s.inbox.post(func(m *machine) { m.released(claim, nil) })
		return
	}
	free := claim.DeepCopy()
	free.Status.ReservedFor, free.Status.Allocation, free.Status.Devices = nil, nil, nil
	now, err := s.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, free, metav1.UpdateOptions{})
	if err != nil {
		now = nil
		if !isGone(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot remove an allocation", "claim", klog.KObj(claim))
		}
	}
	s.inbox.post(func(m *machine) { m.released(claim, now) })
}
