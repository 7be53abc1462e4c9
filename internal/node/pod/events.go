// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import v1 "k8s.io/api/core/v1"

// ContainerReference returns the object for events about one container: the pod, with the
// container's field path.
func ContainerReference(pod *v1.Pod, container string) *v1.ObjectReference {
	ref := Reference(pod)
	ref.FieldPath = fieldPath(pod, container)
	return ref
}

// Reference returns the object for events about the whole pod.
func Reference(pod *v1.Pod) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}
}

func fieldPath(pod *v1.Pod, container string) string {
	if container == "" {
		return "" // about the whole pod
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return "spec.containers{" + container + "}"
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	return "spec.ephemeralContainers{" + container + "}"
}
