// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of pod conditions.
const (
	reasonPodCompleted     = "PodCompleted"
	reasonPodFailed        = "PodFailed"
	reasonNotReady         = "ContainersNotReady"
	reasonNotInitialized   = "ContainersNotInitialized"
	reasonGatesNotReady    = "ReadinessGatesNotReady"
	reasonSandboxNotReady  = "PodSandboxNotReady"
	messageUnreadyStatus   = "containers with unready status: %s"
	messageIncompleteState = "containers with incomplete status: %s"
)

// conditions computes the five conditions that the agent always sets. Each has the generation of
// the spec it was computed from and the time when its status last changed.
func (d *decision) conditions(s *v1.PodStatus) []v1.PodCondition {
	containers := d.containersReady(s)
	conditions := []v1.PodCondition{
		d.readyToStart(),
		d.initializedCondition(s),
		d.podReady(s, containers),
		containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration = d.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(d.Now).Rfc3339Copy()
		if old := conditionOf(d.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return conditions
}

func (d *decision) readyToStart() v1.PodCondition {
	if problem := d.sandboxProblem(); problem != "" {
		return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: reasonSandboxNotReady, Message: problem}
	}
	return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}
}

func (d *decision) initializedCondition(s *v1.PodStatus) v1.PodCondition {
	condition := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if s.Phase == v1.PodSucceeded {
		condition.Reason = reasonPodCompleted
		return condition
	}
	for _, c := range s.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil || isTrue(c.Started) {
			return condition // app containers only start after initialization
		}
	}
	var incomplete []string
	for i, c := range s.InitContainerStatuses {
		if IsSidecar(&d.Pod.Spec.InitContainers[i]) && !isTrue(c.Started) || !IsSidecar(&d.Pod.Spec.InitContainers[i]) && !c.Ready {
			incomplete = append(incomplete, c.Name)
		}
	}
	if len(incomplete) > 0 {
		condition.Status, condition.Reason = v1.ConditionFalse, reasonNotInitialized
		condition.Message = fmt.Sprintf(messageIncompleteState, incomplete)
	}
	return condition
}

func (d *decision) containersReady(s *v1.PodStatus) v1.PodCondition {
	condition := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch s.Phase {
	case v1.PodSucceeded:
		condition.Reason = reasonPodCompleted
		return condition
	case v1.PodFailed:
		condition.Reason = reasonPodFailed
		return condition
	}
	var unready []string
	for i, c := range s.InitContainerStatuses {
		if IsSidecar(&d.Pod.Spec.InitContainers[i]) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for i := range d.Pod.Spec.Containers {
		name := d.Pod.Spec.Containers[i].Name
		if c := statusNamed(*s, name); c == nil || !c.Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		condition.Reason, condition.Message = reasonNotReady, fmt.Sprintf(messageUnreadyStatus, unready)
		return condition
	}
	condition.Status = v1.ConditionTrue
	return condition
}

// podReady computes the Ready condition from ContainersReady and the readiness gates (KEP-580).
func (d *decision) podReady(s *v1.PodStatus, containers v1.PodCondition) v1.PodCondition {
	ready := containers
	ready.Type = v1.PodReady
	if containers.Status != v1.ConditionTrue {
		return ready
	}
	var problems []string
	for _, gate := range d.Pod.Spec.ReadinessGates {
		switch c := conditionOf(s.Conditions, gate.ConditionType); {
		case c == nil:
			problems = append(problems, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			problems = append(problems, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	if len(problems) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, reasonGatesNotReady, strings.Join(problems, ", ")
	}
	return ready
}

func conditionOf(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}
