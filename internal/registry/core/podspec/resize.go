// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidatePodResize checks an in-place change of a running pod's resources (KEP-1287). CPU and
// memory may change, but may not be added or removed, and the QoS class must stay.
func ValidatePodResize(c *check.Checker, pod, old *v1.Pod) {
	switch {
	case isMirror(&old.ObjectMeta):
		c.Forbidden(field.NewPath(""), "static pods cannot be resized")
		return
	case isWindows(&old.Spec):
		c.Forbidden(field.NewPath(""), "windows pods cannot be resized")
		return
	}
	path, rest := field.NewPath("spec"), pod.Spec.DeepCopy()
	valid := c.Passes(func() {
		validateMetadataUpdate(c, &pod.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
		validatePod(c, pod)
		validateResize(c, pod, old, rest, path)
	})
	if valid && !equality.Semantic.DeepEqual(rest, &old.Spec) {
		c.Forbidden(path, onlyResources)
	}
}

const onlyResources = "only cpu and memory resources are mutable"

// validateResize checks the changes that a resize may make, and undoes them in rest, a copy of the
// pod's spec.
func validateResize(c *check.Checker, pod, old *v1.Pod, rest *v1.PodSpec, path *field.Path) {
	if qos.GetPodQOS(old) != qos.ComputePodQOS(pod) {
		c.Invalid(path, pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	if !nodeResizes(old) {
		c.Forbidden(path, "Pod running on node without support for resize")
	}
	if hasResources(pod.Spec.Resources) || hasResources(old.Spec.Resources) {
		validatePodResize(c, rest, &old.Spec, path)
	}
	same := validateSameContainers(c, pod.Spec.Containers, old.Spec.Containers, "containers", path)
	same = validateSameContainers(c, pod.Spec.InitContainers, old.Spec.InitContainers, "initContainers", path) && same
	if !same {
		return
	}
	for i := range rest.InitContainers {
		at := path.Child("initContainers").Index(i)
		if !validateContainerResize(c, &rest.InitContainers[i], &old.Spec.InitContainers[i], at) {
			c.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
		}
	}
	for i := range rest.Containers {
		if !validateContainerResize(c, &rest.Containers[i], &old.Spec.Containers[i], path.Child("containers").Index(i)) {
			c.Forbidden(path, onlyResources)
		}
	}
	if !equality.Semantic.DeepEqual(pod.Spec.Volumes, old.Spec.Volumes) {
		c.Forbidden(path.Child("volumes"), "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled")
	}
}

// nodeResizes reports whether the pod's node supports resizing: then it reports the resources of
// running containers. If no container runs, nodeResizes assumes that it does.
func nodeResizes(pod *v1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running != nil {
			return status.Resources != nil
		}
	}
	return true
}

func hasResources(resources *v1.ResourceRequirements) bool {
	return resources != nil && len(resources.Requests)+len(resources.Limits) > 0
}

func validateSameContainers(c *check.Checker, now, old []v1.Container, list string, path *field.Path) bool {
	if len(now) != len(old) {
		c.Forbidden(path.Child(list), list+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range now {
		if now[i].Name != old[i].Name {
			c.Forbidden(path.Child(list).Index(i).Child("name"), list+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

// validateContainerResize undoes the change of a container's CPU and memory, and reports whether
// the container had no other change.
func validateContainerResize(c *check.Checker, container, old *v1.Container, path *field.Path) bool {
	at := path.Child("resources")
	if isRemoved(container.Resources.Requests, old.Resources.Requests) {
		c.Forbidden(at.Child("requests"), "resource requests cannot be removed")
	}
	if isRemoved(container.Resources.Limits, old.Resources.Limits) {
		c.Forbidden(at.Child("limits"), "resource limits cannot be removed")
	}
	undoResize(&container.Resources, &old.Resources)
	return equality.Semantic.DeepEqual(container, old)
}

// validatePodResize is validateContainerResize for the resources of the pod.
func validatePodResize(c *check.Checker, rest, old *v1.PodSpec, path *field.Path) {
	at := path.Child("resources")
	before := old.Resources
	switch {
	case before == nil:
		before = &v1.ResourceRequirements{}
	case rest.Resources == nil:
		c.Forbidden(at, "pod-level resources cannot be removed")
		return
	default:
		if isRemoved(rest.Resources.Requests, before.Requests) {
			c.Forbidden(at.Child("requests"), "pod-level resource requests cannot be removed")
		}
		if isRemoved(rest.Resources.Limits, before.Limits) {
			c.Forbidden(at.Child("limits"), "pod-level resource limits cannot be removed")
		}
	}
	undoResize(rest.Resources, before)
	if old.Resources == nil && !hasResources(rest.Resources) && len(rest.Resources.Claims) == 0 {
		rest.Resources = nil
	}
	if !equality.Semantic.DeepEqual(rest.Resources, old.Resources) {
		c.Forbidden(path, "only cpu and memory resources are mutable at pod-level")
	}
}

func isRemoved(now, old v1.ResourceList) bool {
	for name := range old {
		if _, found := now[name]; !found {
			return true
		}
	}
	return false
}

func undoResize(resources, old *v1.ResourceRequirements) {
	resources.Requests = withCPUAndMemoryOf(old.Requests, resources.Requests)
	resources.Limits = withCPUAndMemoryOf(old.Limits, resources.Limits)
}

func withCPUAndMemoryOf(old, now v1.ResourceList) v1.ResourceList {
	list := v1.ResourceList{}
	maps.Copy(list, now)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		delete(list, name)
		if quantity, found := old[name]; found {
			list[name] = quantity
		}
	}
	return list
}
