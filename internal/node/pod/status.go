// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// status computes the pod's status from the runtime. Its phase follows from the containers alone:
// mustStop depends on it. publish then decides what the API may see of it.
func (d *decision) status() v1.PodStatus {
	if d.isFinal() {
		return d.finalStatus()
	}
	s := v1.PodStatus{
		ObservedGeneration: d.Pod.Generation,
		QOSClass:           qos.GetPodQOS(d.Pod),
		StartTime:          d.startTime(),
	}
	d.addresses(&s)
	keepOthersFields(&s, &d.Pod.Status)
	d.podResources(&s)
	s.InitContainerStatuses = d.containerStatuses(d.Pod.Spec.InitContainers, initContainer)
	s.ContainerStatuses = d.containerStatuses(d.Pod.Spec.Containers, appContainer)
	s.EphemeralContainerStatuses = d.containerStatuses(ephemeralSpecs(d.Pod), ephemeralContainer)
	over := d.deleting() || d.ended() != nil || IsOver(d.Pod.Status.Phase)
	s.Phase = phaseOf(d.Pod, &s, over && !d.anythingRuns(), d.anyAppRanInSandbox(), d.startsAgain)
	if IsOver(s.Phase) && !over && d.anyAppReplaced() {
		s.Phase = v1.PodRunning // it was stopped in order to restart it, whatever its exit code
	}
	d.applyFinalPhase(&s)
	return s
}

// anyAppReplaced reports whether the last run of an app container has exited and is to be replaced. The next run may have been
// created.
func (d *decision) anyAppReplaced() bool {
	return slices.ContainsFunc(d.Pod.Spec.Containers, func(c v1.Container) bool {
		runs := d.Runtime.Runs(c.Name)
		last := slices.IndexFunc(runs, func(run runtime.Container) bool { return run.State != runtime.Created })
		return last >= 0 && runs[last].State == runtime.Exited && d.isReplaced(&c, runs[last])
	})
}

// isFinal reports whether the status does not depend on containers: the node refused the pod, or
// the pod is over and the runtime has none of its containers.
func (d *decision) isFinal() bool {
	return d.Memory.Rejected != nil || IsOver(d.Pod.Status.Phase) && len(d.Runtime.Containers) == 0
}

func (d *decision) finalStatus() v1.PodStatus {
	s := *d.Pod.Status.DeepCopy()
	if r := d.Memory.Rejected; r != nil {
		s.ObservedGeneration = d.Pod.Generation
		s.QOSClass = qos.GetPodQOS(d.Pod)
		s.StartTime = d.startTime()
		s.Phase, s.Reason, s.Message = v1.PodFailed, r.Reason, "Pod was rejected: "+r.Message
	}
	return s
}

func (d *decision) startTime() *metav1.Time {
	if d.Old.StartTime != nil {
		return d.Old.StartTime
	}
	now := metav1.NewTime(d.Now).Rfc3339Copy()
	return &now
}

// addresses sets host and pod IPs. A pod without a ready sandbox keeps the addresses of its last one.
func (d *decision) addresses(s *v1.PodStatus) {
	if len(d.HostIPs) > 0 {
		s.HostIP = d.HostIPs[0]
	}
	for _, ip := range d.HostIPs {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	s.PodIP, s.PodIPs = d.Old.PodIP, d.Old.PodIPs
	var ips []string
	if d.Pod.Spec.HostNetwork {
		ips = d.HostIPs
	} else if sandbox, ok := d.Runtime.ReadySandbox(); ok {
		ips = sandbox.IPs
	}
	if len(ips) == 0 {
		return
	}
	s.PodIP, s.PodIPs = ips[0], nil
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// keepOthersFields copies from api the fields and conditions of the status that other clients own:
// the scheduler, the resource claim controllers and the owners of readiness gates.
func keepOthersFields(s, api *v1.PodStatus) {
	s.NominatedNodeName = api.NominatedNodeName
	s.Resize = api.Resize
	s.ResourceClaimStatuses = api.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	own := slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1.PodCondition) bool { return !isOwnCondition(c.Type) && !isOwnDisruption(c) })
	others := slices.DeleteFunc(slices.Clone(api.Conditions), func(c v1.PodCondition) bool {
		return isOwnCondition(c.Type) || conditionOf(own, c.Type) != nil
	})
	s.Conditions = slices.Concat(others, own)
}

// applyFinalPhase keeps a phase that is already final, and sets the phase, reason and message of a pod
// that the node ends.
func (d *decision) applyFinalPhase(s *v1.PodStatus) {
	api := d.Pod.Status
	switch {
	case IsOver(api.Phase):
		s.Phase = api.Phase
	case IsOver(d.Old.Phase):
		s.Phase = d.Old.Phase
	}
	if s.Phase == d.Old.Phase {
		s.Reason, s.Message = d.Old.Reason, d.Old.Message
	}
	end := d.ended()
	if end == nil || IsOver(api.Phase) || d.succeededEvicted(s) {
		return
	}
	s.Phase, s.Reason, s.Message = v1.PodFailed, end.Reason, end.Message
}

// anyAppRanInSandbox reports whether an app container has run in the current sandbox.
func (d *decision) anyAppRanInSandbox() bool {
	sandbox, ok := d.Runtime.ReadySandbox()
	if !ok {
		return false
	}
	for i := range d.Pod.Spec.Containers {
		if run, ok := d.runIn(sandbox, d.Pod.Spec.Containers[i].Name); ok && run.State != runtime.Created {
			return true
		}
	}
	return false
}

// publish makes the status fit for the API: its phase is final only when no container runs and no claim
// is prepared, because the claims of a pod that is over may be given to other pods; a
// deleted pod that is finished has only terminated containers, and the conditions match.
func (d *decision) publish() {
	s := &d.out.Status
	if d.isFinal() {
		return
	}
	if IsOver(s.Phase) && !IsOver(d.Pod.Status.Phase) && (d.anythingRuns() || d.holdsDevices()) {
		s.Phase, s.Reason, s.Message = d.Old.Phase, d.Old.Reason, d.Old.Message
		if s.Phase == "" {
			s.Phase = v1.PodPending
		}
	}
	if d.out.Finished && d.deleting() {
		d.terminateAll(s)
	}
	if c := d.disruption(s); c != nil {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(other v1.PodCondition) bool { return other.Type == c.Type })
		s.Conditions = append(s.Conditions, *c)
	}
	s.Conditions = slices.Concat(s.Conditions, d.resizeConditions(s), d.conditions(s), d.restartingCondition(s))
}

// holdsDevices reports whether the pod may still have devices, or other resources, that the scheduler would give to
// another pod if it were over.
func (d *decision) holdsDevices() bool {
	return d.Assigned || usesClaims(d.Pod) && !d.Memory.ClaimsReleased
}

// terminateAll gives every container of a deleted pod a terminated state. A container that the
// runtime no longer has counts as failed, so that the pod does not count as succeeded.
func (d *decision) terminateAll(s *v1.PodStatus) {
	lost := func(c *v1.ContainerStatus) {
		if c.State.Terminated == nil {
			c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason:   reasonStatusUnknown,
				Message:  "The container could not be located when the pod was terminated",
				ExitCode: 137,
			}}
			c.Ready, c.Started = false, new(false)
		}
	}
	if initialized(d.Pod, s) {
		for i := range s.ContainerStatuses {
			lost(&s.ContainerStatuses[i])
		}
	}
	for i := range attempted(s.InitContainerStatuses) {
		lost(&s.InitContainerStatuses[i])
	}
	if !IsOver(s.Phase) {
		s.Phase = v1.PodFailed
	}
}

// initialized reports whether the status shows that initialization completed.
func initialized(pod *v1.Pod, s *v1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for _, c := range s.ContainerStatuses {
		if c.LastTerminationState.Terminated != nil || c.State.Waiting == nil {
			return true
		}
	}
	if len(s.InitContainerStatuses) == 0 {
		return false
	}
	last := s.InitContainerStatuses[len(s.InitContainerStatuses)-1]
	if IsSidecar(&pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]) {
		return last.State.Running != nil && isTrue(last.Started)
	}
	return succeeded(last.State) || succeeded(last.LastTerminationState)
}

func succeeded(s v1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ExitCode == 0 }

// attempted returns the init containers without those at the end that never started. It always
// keeps the first.
func attempted(list []v1.ContainerStatus) []v1.ContainerStatus {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].State.Waiting == nil || list[i].LastTerminationState.Terminated != nil {
			return list[:i+1]
		}
	}
	return list[:min(1, len(list))]
}

// isOwnDisruption reports whether a condition DisruptionTarget is the agent's. Other clients set it as well.
func isOwnDisruption(c v1.PodCondition) bool {
	return c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet
}

// isOwnCondition reports whether the agent owns a condition.
func isOwnCondition(t v1.PodConditionType) bool {
	return slices.Contains([]v1.PodConditionType{
		v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting,
	}, t)
}

// statusNamed returns the status of any kind of container, or nil.
func statusNamed(s v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func ephemeralSpecs(pod *v1.Pod) []v1.Container {
	var specs []v1.Container
	for _, c := range pod.Spec.EphemeralContainers {
		specs = append(specs, v1.Container(c.EphemeralContainerCommon))
	}
	return specs
}
