// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Violation is a limit of local storage that a pod exceeds.
type Violation struct {
	Signal  Signal
	Message string
}

// OverLimit returns the first limit of local storage that a pod exceeds, or nil: that of an emptyDir, of the pod, or of
// a container. The kernel enforces the limit of an emptyDir in memory.
func OverLimit(pod *v1.Pod, usage Usage, l Layout) *Violation {
	for _, check := range []func(*v1.Pod, Usage, Layout) *Violation{emptyDirOver, podOver, containerOver} {
		if v := check(pod, usage, l); v != nil {
			return v
		}
	}
	return nil
}

func emptyDirOver(pod *v1.Pod, usage Usage, _ Layout) *Violation {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil {
			continue
		}
		limit := v.EmptyDir.SizeLimit
		if limit.Sign() > 0 && usage.Volumes[v.Name].Bytes > limit.Value() {
			return &Violation{EmptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())}
		}
	}
	return nil
}

func podOver(pod *v1.Pod, usage Usage, _ Layout) *Violation {
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	limit, ok := limits[v1.ResourceEphemeralStorage]
	if !ok || usage.total(pod).Bytes <= limit.Value() {
		return nil
	}
	return &Violation{PodLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())}
}

// containerOver compares only what a container stores on nodefs with its limit.
func containerOver(pod *v1.Pod, usage Usage, l Layout) *Violation {
	for _, c := range allContainers(pod) {
		limit := c.Resources.Limits.StorageEphemeral()
		measured, ok := usage.Containers[c.Name]
		if limit.IsZero() || !ok || isPlainInit(pod, &c) {
			continue
		}
		used := int64(0)
		if measured.Logs != nil {
			used += measured.Logs.Bytes
		}
		if measured.Layer != nil && l == OneFs {
			used += measured.Layer.Bytes
		}
		if used > limit.Value() {
			return &Violation{ContainerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())}
		}
	}
	return nil
}

// isPlainInit reports whether a container is an init container that does not keep running.
func isPlainInit(pod *v1.Pod, c *v1.Container) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == c.Name {
			return c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
		}
	}
	return false
}
