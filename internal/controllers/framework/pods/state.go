// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// IsTerminal reports whether all containers of the pod have stopped and will not restart.
func IsTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// HasEnded reports whether no container of the pod runs or will run.
func HasEnded(pod *corev1.Pod) bool {
	s := pod.Status
	return IsTerminal(pod) || pod.DeletionTimestamp != nil &&
		!slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), mayRun)
}

func mayRun(s corev1.ContainerStatus) bool {
	return s.State.Terminated == nil && s.State.Waiting == nil
}

// IsActive reports whether the pod counts as a replica: it has not ended and is not being
// deleted.
func IsActive(pod *corev1.Pod) bool {
	return !IsTerminal(pod) && pod.DeletionTimestamp == nil
}

// IsTerminating reports whether the pod is being deleted and has not ended.
func IsTerminating(pod *corev1.Pod) bool {
	return !IsTerminal(pod) && pod.DeletionTimestamp != nil
}

// Condition returns the pod's condition of the given type, or nil.
func Condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// SetDisruptionTarget sets the condition DisruptionTarget, by which a Job distinguishes a
// disrupted pod from one that failed (KEP-3329).
func SetDisruptionTarget(pod *corev1.Pod, reason, message string, now time.Time) {
	target := corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		ObservedGeneration: pod.Generation,
		Status:             corev1.ConditionTrue,
		Reason:             reason,
		Message:            message,
		LastTransitionTime: metav1.NewTime(now),
	}
	current := Condition(pod, corev1.DisruptionTarget)
	if current == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, target)
		return
	}
	if current.Status == target.Status {
		target.LastTransitionTime = current.LastTransitionTime
	}
	*current = target
}

// IsReady reports whether the pod's Ready condition is true.
func IsReady(pod *corev1.Pod) bool {
	ready := Condition(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// IsAvailable reports whether the pod has been ready for minReadySeconds.
func IsAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !IsReady(pod) {
		return false
	}
	if minReadySeconds == 0 {
		return true
	}
	since := readySince(pod)
	return !since.IsZero() && !since.Add(seconds(minReadySeconds)).After(now)
}

// NextAvailable returns the time until a ready pod becomes available, for which there is no event;
// 0 if no pod is about to.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (next time.Duration) {
	for _, pod := range pods {
		if !IsReady(pod) || IsAvailable(pod, minReadySeconds, now) {
			continue
		}
		wait := seconds(minReadySeconds)
		if since := readySince(pod); !since.IsZero() {
			wait = since.Add(wait).Sub(now)
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	return next
}

// Filter returns the pods for which keep is true.
func Filter(pods []*corev1.Pod, keep func(*corev1.Pod) bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range pods {
		if keep(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// OwnedBy returns a filter for pods that the controller with this UID owns and
// selects.
func OwnedBy(uid types.UID, selector labels.Selector) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		ref := metav1.GetControllerOfNoCopy(pod)
		return ref != nil && ref.UID == uid && selector.Matches(labels.Set(pod.Labels))
	}
}

// readySince returns when the pod became ready, or the zero time if it is not ready.
func readySince(pod *corev1.Pod) time.Time {
	if !IsReady(pod) {
		return time.Time{}
	}
	return Condition(pod, corev1.PodReady).LastTransitionTime.Time
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
