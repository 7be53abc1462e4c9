// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

var podColumns = []generic.Column[*corev1.Pod]{
	{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.", Cell: func(p *corev1.Pod) any { return summarize(p).readiness() }},
	{Name: "Status", Description: "The aggregate status of the containers in this pod.", Cell: func(p *corev1.Pod) any { return summarize(p).status }},
	{Name: "Restarts", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", Cell: func(p *corev1.Pod) any { return summarize(p).restartsAgo() }},
	{Name: "IP", Wide: true, Description: corev1.PodStatus{}.SwaggerDoc()["podIP"], Cell: func(p *corev1.Pod) any { return generic.OrNone(firstPodIP(p)) }},
	{Name: "Node", Wide: true, Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"], Cell: func(p *corev1.Pod) any { return generic.OrNone(p.Spec.NodeName) }},
	{Name: "Nominated Node", Wide: true, Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"], Cell: func(p *corev1.Pod) any { return generic.OrNone(p.Status.NominatedNodeName) }},
	{Name: "Readiness Gates", Wide: true, Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"], Cell: readinessGates},
}

// podRowConditions let kubectl distinguish finished pods.
func podRowConditions(p *corev1.Pod) []metav1.TableRowCondition {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodSucceeded), Message: "The pod has completed successfully."}}
	case corev1.PodFailed:
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodFailed), Message: "The pod failed."}}
	}
	return nil
}

func readinessGates(p *corev1.Pod) any {
	if len(p.Spec.ReadinessGates) == 0 {
		return generic.OrNone("")
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podConditionTrue(p, gate.ConditionType) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}

func podConditionTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// summary is the content of a pod's row.
type summary struct {
	status       string
	ready, total int
	restarts     int64
	restarted    metav1.Time
}

func (s summary) readiness() string { return fmt.Sprintf("%d/%d", s.ready, s.total) }

func (s summary) restartsAgo() any {
	if s.restarts == 0 || s.restarted.IsZero() {
		return fmt.Sprint(s.restarts)
	}
	return generic.Timed(func(c clock.PassiveClock) string {
		return fmt.Sprintf("%d (%s ago)", s.restarts, generic.Age(c, s.restarted))
	})
}

// summarize computes the STATUS of a pod as kubectl shows it: the progress of init containers, then
// the state of the app containers; Terminating overrides both.
func summarize(p *corev1.Pod) summary {
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
		}
	}
	s := summary{status: cmp.Or(p.Status.Reason, string(p.Status.Phase)), total: len(p.Spec.Containers) + len(sidecars)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	initializing := s.addInitContainers(p, sidecars)
	if !initializing || podConditionTrue(p, corev1.PodInitialized) {
		s.restarts, s.restarted = 0, metav1.Time{}
		for _, c := range p.Status.InitContainerStatuses {
			if sidecars[c.Name] {
				s.addRestarts(c)
			}
		}
		s.addContainers(p)
	}
	s.addDeletion(p)
	return s
}

// nodeLost is the reason of pods on an unreachable node.
const nodeLost = "NodeLost"

func (s *summary) addDeletion(p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == nodeLost:
		s.status = "Unknown"
	case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
		s.status = "Terminating"
	}
}

func (s *summary) addRestarts(c corev1.ContainerStatus) {
	s.restarts += int64(c.RestartCount)
	last := c.LastTerminationState.Terminated
	if last != nil && s.restarted.Before(&last.FinishedAt) {
		s.restarted = last.FinishedAt
	}
}

// addInitContainers finds the init container that the pod is waiting for.
func (s *summary) addInitContainers(p *corev1.Pod, sidecars map[string]bool) (initializing bool) {
	for i, c := range p.Status.InitContainerStatuses {
		s.addRestarts(c)
		terminated, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.status = "Init:" + terminationReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true
	}
	return false
}

func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// addContainers takes the status from the first container with a reason.
func (s *summary) addContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = terminationReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	// A completed container does not hide those that are running.
	switch {
	case running && podConditionTrue(p, corev1.PodReady):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}
