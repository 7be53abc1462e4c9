// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// execute performs a decision asynchronously.
func (s *Scheduler) execute(ctx context.Context, effects *lanes, d decision) {
	if d.group != nil {
		effects.do(d.group.object.UID, func() { s.reportGroup(ctx, d.group) })
		return
	}
	effects.do(d.pod.UID, func() {
		switch {
		case d.event != nil:
			s.Recorder.Eventf(d.pod.Pod, nil, v1.EventTypeNormal, d.event.reason, "Scheduling", "%s", d.event.message)
			return
		case d.undo:
			s.unreserve(ctx, d.pod, &d.reservation.Devices)
		case d.reservation != nil:
			s.reserve(ctx, d.pod, d.node, d.reservation)
			return
		case d.node != "":
			s.bind(ctx, d.pod, d.node)
			return
		case d.deallocate != nil:
			s.deallocate(ctx, d.deallocate)
		}
		s.report(ctx, d)
		if d.preempt != nil {
			s.preempt(ctx, d.pod, d.preempt)
		}
	})
}

// bind creates the pod's binding.
func (s *Scheduler) bind(ctx context.Context, pod *model.Pod, node string) {
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	err := s.Bind(ctx, binding)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("running Bind plugin %q: %w", "DefaultBinder", err)
		s.inbox.post(func(m *machine) { m.notBound(pod.UID, err) })
		return
	}
	s.Recorder.Eventf(pod.Pod, nil, v1.EventTypeNormal, reasonScheduled, "Binding",
		"Successfully assigned %v/%v to %v", pod.Namespace, pod.Name, node)
}

// report writes why a pod could not be placed: an event each time, and the pod's condition when it
// changes.
func (s *Scheduler) report(ctx context.Context, d decision) {
	s.Recorder.Eventf(d.pod.Pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", shortened(d.message))
	patch := s.statusPatch(d.pod.Pod, v1.PodCondition{
		Type:    v1.PodScheduled,
		Status:  v1.ConditionFalse,
		Reason:  d.reason,
		Message: d.message,
	}, d.nominate)
	if patch == nil {
		return
	}
	if err := s.patchStatus(ctx, d.pod.Pod, patch); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot update the status of a pod that could not be scheduled", "pod", klog.KObj(d.pod.Pod))
	}
}

// preempt clears a node: the nominations of less important pods are removed, and the victims are
// deleted with their grace period, each with the reason in its status.
func (s *Scheduler) preempt(ctx context.Context, pod *model.Pod, p *preemption) {
	logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(pod.Pod), "node", p.node)
	none := ""
	for _, other := range p.demoted {
		if patch := s.statusPatch(other.Pod, v1.PodCondition{}, &none); patch != nil {
			if err := s.patchStatus(ctx, other.Pod, patch); err != nil {
				logger.Error(err, "Cannot clear the nomination of a less important pod", "other", klog.KObj(other.Pod))
			}
		}
	}
	if err := s.evictAll(ctx, preemptor{"pod", pod.UID, pod.Pod, pod.Spec.SchedulerName}, p); err != nil && ctx.Err() == nil {
		logger.Error(err, "Cannot preempt")
		s.inbox.post(func(m *machine) { m.notPreempted(pod.UID, p) })
	}
}

// preemptor is a pod or PodGroup for which pods are deleted.
type preemptor struct {
	kind      string
	uid       types.UID
	object    runtime.Object
	scheduler string
}

// evictAll deletes the victims of a preemption.
func (s *Scheduler) evictAll(ctx context.Context, by preemptor, p *preemption) error {
	for _, victim := range p.victims {
		if victim.DeletionTimestamp != nil {
			continue
		}
		if err := s.evict(ctx, by, victim, p.node); err != nil {
			return fmt.Errorf("delete pod %s: %w", klog.KObj(victim.Pod), err)
		}
	}
	return nil
}

func (s *Scheduler) evict(ctx context.Context, by preemptor, victim *model.Pod, node string) error {
	patch := s.statusPatch(victim.Pod, v1.PodCondition{
		Type:    v1.DisruptionTarget,
		Status:  v1.ConditionTrue,
		Reason:  v1.PodReasonPreemptionByScheduler,
		Message: by.scheduler + ": preempting to accommodate a higher priority " + by.kind,
	}, nil)
	if patch != nil {
		if err := s.patchStatus(ctx, victim.Pod, patch); err != nil {
			return err
		}
	}
	uid := victim.UID
	err := s.Client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.Recorder.Eventf(victim.Pod, by.object, v1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by %s %v on node %v", by.kind, by.uid, node)
	return nil
}

// patchStatus writes a pod's status. It is not an error if the pod was deleted.
func (s *Scheduler) patchStatus(ctx context.Context, pod *v1.Pod, patch []byte) error {
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if isGone(err) || ctx.Err() != nil {
		return nil
	}
	return err
}

// isGone reports whether a write failed because the pod was deleted: it was not found, or its name
// has another UID.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// statusPatch returns a patch that sets a condition (unless its type is empty) and the nominated
// node (unless it is nil); nil if they are set already. It contains the UID, so that it cannot
// apply to another pod of the same name.
func (s *Scheduler) statusPatch(pod *v1.Pod, condition v1.PodCondition, nominate *string) []byte {
	status := map[string]any{}
	if condition.Type != "" && s.complete(pod, &condition) {
		status["conditions"] = []v1.PodCondition{condition}
	}
	if nominate != nil && *nominate != pod.Status.NominatedNodeName {
		status["nominatedNodeName"] = *nominate
	}
	if len(status) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil // cannot happen: strings and times always marshal
	}
	return patch
}

// complete sets a condition's generation and time, and reports whether it differs from the pod's.
// The time is when the status last changed.
func (s *Scheduler) complete(pod *v1.Pod, condition *v1.PodCondition) bool {
	condition.ObservedGeneration = pod.Generation
	condition.LastTransitionTime = metav1.NewTime(s.Clock.Now())
	for i := range pod.Status.Conditions {
		old := &pod.Status.Conditions[i]
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		return old.Status != condition.Status || old.Reason != condition.Reason ||
			old.Message != condition.Message || old.ObservedGeneration != condition.ObservedGeneration
	}
	return true
}

// shortened returns a message that fits into an event's note.
func shortened(message string) string {
	const limit, suffix = 1024, " ..."
	if len(message) <= limit {
		return message
	}
	return message[:limit-len(suffix)] + suffix
}
