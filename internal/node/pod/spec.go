// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// containerOf returns the spec of any kind of container of the pod, or nil.
func containerOf(pod *v1.Pod, name string) *v1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
	}
	return nil
}

// IsSidecar says whether an init container keeps running beside the app
// containers (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func sidecarNamed(pod *v1.Pod, name string) (index int, ok bool) {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return i, IsSidecar(c)
		}
	}
	return 0, false
}

// restarts says whether a container which ended with exitCode runs again: by the
// first of its own rules that matches, else its own policy (KEP-5307), else the pod's.
func restarts(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		if restart, ok := ruleFor(c, exitCode); ok {
			return restart
		}
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

func ruleFor(c *v1.Container, exitCode int32) (restart, ok bool) {
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule.Action == v1.ContainerRestartRuleActionRestart, rule.Action == v1.ContainerRestartRuleActionRestart
		}
	}
	return false, false
}

// neverRestarts says whether the policy alone excludes any restart.
func neverRestarts(pod *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy == v1.RestartPolicyNever
}

// shouldRestart says whether a container which ended should run again, by policy
// or since its definition changed.
func shouldRestart(pod *v1.Pod, c *v1.Container, ended runtime.Container) bool {
	return restarts(pod, c, ended.ExitCode) || changed(c, ended)
}

// changed says whether the container's definition is no longer what the run was started
// from: the image, or resources with resize policy RestartContainer. That is all the API lets a pod
// change there and that needs a restart.
func changed(c *v1.Container, run runtime.Container) bool {
	return run.Hash != "" && run.Hash != hashOf(c)
}

// onlyResized says whether a changed container differs but in its resources.
func onlyResized(c *v1.Container, run runtime.Container) bool {
	before, _, _ := strings.Cut(run.Hash, "-")
	now, _, _ := strings.Cut(hashOf(c), "-")
	return before == now
}

// hashOf identifies what changed looks at: the image and, behind a dash, the resources.
func hashOf(c *v1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s", c.Name, c.Image)
	hash := fmt.Sprintf("%x", h.Sum32())
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			request, limit := c.Resources.Requests[policy.ResourceName], c.Resources.Limits[policy.ResourceName]
			hash += fmt.Sprintf("-%d-%d", amountOf(policy.ResourceName, request), amountOf(policy.ResourceName, limit))
		}
	}
	return hash
}

// shownMetadata identifies the labels and annotations of a pod with downwardAPI volumes;
// empty for one without.
func shownMetadata(pod *v1.Pod) string {
	shown := slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.DownwardAPI != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
			return s.DownwardAPI != nil
		})
	})
	if !shown {
		return ""
	}
	h := fnv.New64a()
	fmt.Fprint(h, pod.Labels, "\x00", pod.Annotations) // maps print in the order of their keys
	return fmt.Sprintf("%x", h.Sum64())
}

// nameAndUID is how messages name a pod: name_namespace(uid).
func nameAndUID(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func trimScheme(id string) string {
	if _, rest, ok := strings.Cut(id, "://"); ok {
		return rest
	}
	return id
}
