// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reason is the reason of evicted pods, and of pods that a node under pressure refuses.
const Reason = "Evicted"

// The annotations of the event about an evicted pod.
const (
	starvedResource          = "starved_resource"
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
)

// pressureMessage returns why a pod is evicted for a resource, and the annotations of the event: which threshold is met,
// and which containers use more than they request.
func pressureMessage(name v1.ResourceName, pod *v1.Pod, usages Usages, met []Threshold, seen Observations) (string, map[string]string) {
	message := fmt.Sprintf("The node was low on resource: %v. ", name)
	for _, t := range met {
		if observed, ok := seen[t.Signal]; ok && t.Signal.resource() == name {
			least := t.Value.Of(observed.Capacity)
			message += fmt.Sprintf("Threshold quantity: %s, available: %s. ", least.String(), observed.Available.String())
			break
		}
	}
	annotations := map[string]string{}
	usage, ok := usages[pod.UID]
	if !ok {
		return message, annotations
	}
	message += podMessage(name, pod, usage, annotations)
	var names, amounts []string
	for _, c := range allContainers(pod) {
		used, ok := usedOf(name, usage.Containers[c.Name])
		request := c.Resources.Requests[name]
		if !ok || used.Cmp(request) <= 0 {
			continue
		}
		message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %v. ", c.Name, used.String(), request.String(), name)
		names, amounts = append(names, c.Name), append(amounts, used.String())
	}
	annotations[offendingContainers] = strings.Join(names, ",")
	annotations[offendingContainersUsage] = strings.Join(amounts, ",")
	annotations[starvedResource] = string(name)
	return message, annotations
}

// podMessage returns what a pod with a memory request of its own uses (KEP-2837).
func podMessage(name v1.ResourceName, pod *v1.Pod, usage Usage, annotations map[string]string) string {
	if name != v1.ResourceMemory || pod.Spec.Resources == nil || usage.Memory == nil {
		return ""
	}
	request, ok := pod.Spec.Resources.Requests[name]
	if !ok {
		return ""
	}
	used := binary(*usage.Memory)
	annotations[offendingPod], annotations[offendingPodUsage] = pod.Name, used.String()
	return fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of %v. ", pod.Name, used.String(), request.String(), name)
}

// usedOf returns how much of a resource a container uses, if that is known.
func usedOf(name v1.ResourceName, c Container) (resource.Quantity, bool) {
	switch {
	case name == v1.ResourceMemory && c.Memory != nil:
		return binary(*c.Memory), true
	case name == v1.ResourceEphemeralStorage && c.Layer != nil && c.Logs != nil:
		return binary(c.Layer.Bytes + c.Logs.Bytes), true
	}
	return resource.Quantity{}, false
}
