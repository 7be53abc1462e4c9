// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"fmt"
	"hash/fnv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Hash identifies the part of a container's spec whose change requires a restart: the image and,
// after a dash, the resources with resize policy RestartContainer. The pod's limit counts where the container has none. The API
// lets nothing else of a container change that requires one.
func Hash(pod *v1.Pod, c *v1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s", c.Name, c.Image)
	hash := fmt.Sprintf("%x", h.Sum32())
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			request, limit := c.Resources.Requests[policy.ResourceName], limitOf(pod, c, policy.ResourceName)
			hash += fmt.Sprintf("-%d-%d", Amount(policy.ResourceName, request), Amount(policy.ResourceName, limit))
		}
	}
	return hash
}

// SameImage reports whether two hashes differ in nothing but the resources.
func SameImage(a, b string) bool {
	a, _, _ = strings.Cut(a, "-")
	b, _, _ = strings.Cut(b, "-")
	return a == b
}

// FullName returns the name of a pod in upstream's messages: name_namespace(uid).
func FullName(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
