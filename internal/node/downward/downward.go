// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package downward resolves field and resource references of the downward API, for environment
// variables and volumes.
package downward

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/fieldpath"
	extract "k8s.io/kubectl/pkg/util/resource"
)

// Field returns the value of a field of the pod. pod.Status must have the addresses that the node
// knows.
func Field(pod *v1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return pod.Status.HostIP, nil
	case "status.hostIPs":
		ips := make([]string, 0, len(pod.Status.HostIPs))
		for _, ip := range pod.Status.HostIPs {
			ips = append(ips, ip.IP)
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		return pod.Status.PodIP, nil
	case "status.podIPs":
		ips := make([]string, 0, len(pod.Status.PodIPs))
		for _, ip := range pod.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		return strings.Join(ips, ","), nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

// Resource returns a request or limit of a container in units of the divisor, rounded up. If the
// selector names no container, it is own. A missing limit defaults to the pod's, then to the node's
// allocatable amount.
func Resource(pod *v1.Pod, own *v1.Container, selector *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	container := own
	if selector.ContainerName != "" {
		if container = find(pod, selector.ContainerName); container == nil {
			return "", fmt.Errorf("container %s not found", selector.ContainerName)
		}
	}
	if container == nil {
		return "", fmt.Errorf("resourceFieldRef of %s names no container", selector.Resource)
	}
	return extract.ExtractContainerResourceValue(selector, withLimits(pod, container, allocatable))
}

func find(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// withLimits returns a copy of the container with defaults for missing limits.
func withLimits(pod *v1.Pod, container *v1.Container, allocatable v1.ResourceList) *v1.Container {
	filled := container.DeepCopy()
	if filled.Resources.Limits == nil {
		filled.Resources.Limits = v1.ResourceList{}
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if limit, ok := filled.Resources.Limits[name]; ok && !limit.IsZero() {
			continue
		}
		if limit, ok := fallback(pod, name, allocatable); ok {
			filled.Resources.Limits[name] = limit
		}
	}
	return filled
}

func fallback(pod *v1.Pod, name v1.ResourceName, allocatable v1.ResourceList) (limit resource.Quantity, ok bool) {
	if pod.Spec.Resources != nil && resourcehelper.IsSupportedPodLevelResource(name) {
		if limit, ok = pod.Spec.Resources.Limits[name]; ok && !limit.IsZero() {
			return limit, true
		}
	}
	limit, ok = allocatable[name]
	return limit, ok
}
