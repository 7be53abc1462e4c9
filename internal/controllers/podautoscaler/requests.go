// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// requestsOf returns what each pod requests of a resource, in thousandths: one container, or the whole
// pod (KEP-2837). Each container must request it.
func requestsOf(all []*corev1.Pod, container string, resource corev1.ResourceName) (map[string]int64, error) {
	requests := make(map[string]int64, len(all))
	for _, pod := range all {
		request, err := requestOf(pod, container, resource)
		if err != nil {
			return nil, err
		}
		requests[pod.Name] = request
	}
	return requests, nil
}

func requestOf(pod *corev1.Pod, container string, resource corev1.ResourceName) (int64, error) {
	if container == "" && resourcehelper.IsPodLevelRequestsSet(pod) {
		request, ok := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[resource]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", resource, pod.Name)
		}
		return request.MilliValue(), nil
	}
	total, found := int64(0), container == ""
	for _, c := range longRunning(pod) {
		if container != "" && container != c.Name {
			continue
		}
		request, ok := c.Resources.Requests[resource]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, pod.Name)
		}
		total, found = total+request.MilliValue(), true
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return total, nil
}

// longRunning returns the app containers and the sidecars (KEP-753).
func longRunning(pod *corev1.Pod) []corev1.Container {
	containers := append([]corev1.Container{}, pod.Spec.Containers...)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	return containers
}
