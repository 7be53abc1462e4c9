// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
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

// usesClaims reports whether the pod may have ResourceClaims, its own or one for extended resources.
func usesClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// IsSidecar reports whether an init container keeps running alongside the app containers (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// sidecarNamed returns the index of an init container, and whether it is a sidecar.
func sidecarNamed(pod *v1.Pod, name string) (index int, ok bool) {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return i, IsSidecar(c)
		}
	}
	return 0, false
}

// restarts reports whether a container that exited with exitCode is restarted: by the first of its
// own rules that matches, else by its own policy (KEP-5307), else by the pod's policy.
func restarts(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		if matchingRule(c, exitCode) != nil {
			return true // both actions restart the container
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

// matchingRule returns the first of the container's restart rules that matches, or nil.
func matchingRule(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule
		}
	}
	return nil
}

// neverRestarts reports whether the restart policy is Never.
func neverRestarts(pod *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy == v1.RestartPolicyNever
}

// shouldRestart reports whether an exited container is restarted: by policy, or because its run is replaced.
func (d *decision) shouldRestart(c *v1.Container, ended runtime.Container) bool {
	return restarts(d.Pod, c, ended.ExitCode) || d.isReplaced(c, ended)
}

// isReplaced reports whether another run follows, whatever the exit code of this one: the container's definition changed, or it
// was stopped because its liveness or startup probe failed. As in the kubelet, a container that handles the stop signal and exits
// with 0 then has not succeeded, even with the policy OnFailure.
func (d *decision) isReplaced(c *v1.Container, run runtime.Container) bool {
	memory := d.Memory.Runs[run.ID]
	unhealthy := !memory.Deadline.IsZero() && (isFalse(memory.Liveness) || isFalse(memory.Startup))
	return changed(d.Pod, c, run) || unhealthy && !neverRestarts(d.Pod, c)
}

// changed reports whether the container's definition, or the pod's limit in place of its own, changed, since the run was created,
// in a way that requires a restart.
func changed(pod *v1.Pod, c *v1.Container, run runtime.Container) bool {
	return run.Hash != "" && run.Hash != criconfig.Hash(pod, c)
}

// replacementPeriod is the time after the end of a run during which the status still shows it as running, if its image changed.
// The kubelet hides such a replacement too, unless it takes longer than the second between two looks at the runtime. Without it,
// the pod would leave the endpoints of Services and return at once.
const replacementPeriod = time.Second

// showsReplaced reports whether the status of a container stays that of its last run, which has just ended because the container's
// image changed, and whose successor is about to run. A container that is restarted for other resources does not have them
// before, so that its resize must not look complete.
func (d *decision) showsReplaced(c *v1.Container, runs []runtime.Container, shown *v1.ContainerStatus) bool {
	last := slices.IndexFunc(runs, func(run runtime.Container) bool { return run.State != runtime.Created })
	if last < 0 || shown == nil || shown.State.Running == nil || shown.ContainerID != d.containerID(runs[last]) {
		return false
	}
	run := runs[last]
	_, failed := d.Memory.Failures[OfContainer(c.Name)]
	if run.State != runtime.Exited || run.Hash == "" || criconfig.SameImage(run.Hash, criconfig.Hash(d.Pod, c)) || failed || d.deleting() || d.ended() != nil || !d.Memory.StoppingSince.IsZero() {
		return false
	}
	until := run.FinishedAt.Add(replacementPeriod)
	if !d.Now.Before(until) {
		return false
	}
	d.wakeAt(until)
	return true
}

// shownMetadata identifies the labels and annotations of a pod with downwardAPI volumes. It is empty
// for a pod without.
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
	fmt.Fprint(h, pod.Labels, "\x00", pod.Annotations) // fmt prints maps in the order of their keys
	return fmt.Sprintf("%x", h.Sum64())
}

// trimScheme returns the runtime's ID of a container ID such as containerd://1a2b.
func trimScheme(id string) string {
	if _, rest, ok := strings.Cut(id, "://"); ok {
		return rest
	}
	return id
}
