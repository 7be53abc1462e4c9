// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// reportGroup writes the condition of a PodGroup, gives back its claims, and preempts its victims.
func (s *Scheduler) reportGroup(ctx context.Context, r *groupReport) {
	logger := klog.FromContext(ctx).WithValues("podGroup", klog.KObj(r.object))
	if patch := s.groupPatch(r); patch != nil {
		_, err := s.Client.SchedulingV1beta1().PodGroups(r.object.Namespace).Patch(ctx, r.object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !isGone(err) && ctx.Err() == nil {
			logger.Error(err, "Cannot update the status of a pod group")
		}
	}
	switch {
	case r.release.deallocate != nil:
		s.deallocate(ctx, r.release.deallocate)
	case r.release.unreserve != nil:
		now := s.endReservation(ctx, r.release.unreserve, r.object.UID)
		s.inbox.post(func(m *machine) { m.released(r.release.unreserve, now) })
	}
	if r.preempt == nil {
		return
	}
	by := preemptor{kind: "podgroup", uid: r.object.UID, object: r.object, scheduler: r.members[0].Spec.SchedulerName}
	if err := s.evictAll(ctx, by, r.preempt); err != nil && ctx.Err() == nil {
		logger.Error(err, "Cannot preempt")
		for _, pod := range r.members {
			s.inbox.post(func(m *machine) { m.notPreempted(pod.UID, r.preempt) })
		}
	}
}

// groupPatch returns a patch that sets the condition of a PodGroup; nil if it is set already.
func (s *Scheduler) groupPatch(r *groupReport) []byte {
	condition := r.condition
	if condition.Type == "" {
		return nil
	}
	condition.ObservedGeneration = r.object.Generation
	condition.LastTransitionTime = metav1.NewTime(s.Clock.Now())
	conditions := r.object.DeepCopy().Status.Conditions
	if !meta.SetStatusCondition(&conditions, condition) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.object.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{*meta.FindStatusCondition(conditions, condition.Type)}},
	})
	if err != nil {
		return nil // cannot happen: strings and times always marshal
	}
	return patch
}
