// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidatePodStatusUpdate checks a status that the kubelet or the scheduler writes. The spec is the
// old one.
func ValidatePodStatusUpdate(c *check.Checker, pod, old *v1.Pod) {
	metaPath, path := field.NewPath("metadata"), field.NewPath("status")
	validateMetadataUpdate(c, &pod.ObjectMeta, &old.ObjectMeta, metaPath)
	validateAnnotations(c, pod.Annotations, &pod.Spec, metaPath.Child("annotations"))
	validateAnnotationUpdate(c, pod.Annotations, old.Annotations)
	validateConditions(c, pod.Status.Conditions, path.Child("conditions"))
	validateNodeNames(c, pod, old, path)
	if pod.Status.ObservedGeneration < 0 {
		c.Invalid(path.Child("observedGeneration"), pod.Status.ObservedGeneration, "must be a non-negative integer")
	}
	c.Immutable(path.Child("qosClass"), pod.Status.QOSClass, old.Status.QOSClass)
	validateRestarts(c, &pod.Status, &old.Status, &old.Spec, path)
	validateClaimStatuses(c, pod, path.Child("resourceClaimStatuses"))
	validateExtendedClaim(c, pod, path.Child("extendedResourceClaimStatus"))
	validatePodIPs(c, &pod.Status, &old.Status, path.Child("podIPs"))
	validateHostIPs(c, &pod.Status, &old.Status, path.Child("hostIPs"))
	validateContainerUsers(c, pod, path)
	validateDeviceHealth(c, pod.Status.ContainerStatuses, pod.Spec.Containers, &pod.Status, path.Child("containerStatuses"))
	validateDeviceHealth(c, pod.Status.InitContainerStatuses, pod.Spec.InitContainers, &pod.Status, path.Child("initContainerStatuses"))
	for i, status := range pod.Status.EphemeralContainerStatuses {
		if len(status.AllocatedResourcesStatus) > 0 {
			c.Forbidden(path.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
		}
	}
}

func validateConditions(c *check.Checker, conditions []v1.PodCondition, path *field.Path) {
	for i, condition := range conditions {
		if condition.ObservedGeneration < 0 {
			c.Invalid(path.Index(i).Child("observedGeneration"), condition.ObservedGeneration, "must be a non-negative integer")
		}
		c.QualifiedName(path.Index(i).Child("Type"), string(condition.Type))
	}
}

func validateNodeNames(c *check.Checker, pod, old *v1.Pod, path *field.Path) {
	if pod.Spec.NodeName != old.Spec.NodeName {
		c.Forbidden(path.Child("nodeName"), "may not be changed directly")
	}
	nominated, at := pod.Status.NominatedNodeName, path.Child("nominatedNodeName")
	if nominated == "" || nominated == old.Status.NominatedNodeName {
		return
	}
	c.DNSSubdomain(at, nominated)
	if old.Spec.NodeName != "" {
		c.Forbidden(at, "may not be set on pods that are already bound to a node")
	}
}

// validateRestarts forbids that a container that terminated and may not restart runs again.
func validateRestarts(c *check.Checker, now, old *v1.PodStatus, spec *v1.PodSpec, path *field.Path) {
	forbidRestarts(c, now.EphemeralContainerStatuses, old.EphemeralContainerStatuses, path.Child("ephemeralContainerStatuses"),
		func(string, int32) bool { return false })
	if anyRestartsAll(spec) {
		return
	}
	for _, list := range []struct {
		name       string
		now, old   []v1.ContainerStatus
		containers []v1.Container
	}{
		{"containerStatuses", now.ContainerStatuses, old.ContainerStatuses, spec.Containers},
		{"initContainerStatuses", now.InitContainerStatuses, old.InitContainerStatuses, spec.InitContainers},
	} {
		forbidRestarts(c, list.now, list.old, path.Child(list.name), func(name string, exitCode int32) bool {
			i := slices.IndexFunc(list.containers, func(container v1.Container) bool { return container.Name == name })
			return i >= 0 && restartsAfter(&list.containers[i], spec.RestartPolicy, exitCode)
		})
	}
}

func forbidRestarts(c *check.Checker, now, old []v1.ContainerStatus, path *field.Path, mayRestart func(name string, exitCode int32) bool) {
	for i, before := range old {
		ended := before.State.Terminated
		if ended == nil || mayRestart(before.Name, ended.ExitCode) {
			continue
		}
		for _, status := range now {
			if status.Name == before.Name && status.State.Terminated == nil {
				c.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
				break
			}
		}
	}
}

// anyRestartsAll reports whether the exit of some container may restart the whole pod.
func anyRestartsAll(spec *v1.PodSpec) bool {
	restartsAll := func(container v1.Container) bool {
		return slices.ContainsFunc(container.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.InitContainers, restartsAll) || slices.ContainsFunc(spec.Containers, restartsAll)
}

// restartsAfter reports whether a container restarts after the exit code, by its rules, its own
// policy or the pod's policy, in this order.
func restartsAfter(container *v1.Container, ofPod v1.RestartPolicy, exitCode int32) bool {
	policy := string(ofPod)
	if own := container.RestartPolicy; own != nil {
		if slices.ContainsFunc(container.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool { return matchesExit(rule, exitCode) }) {
			return true
		}
		policy = string(*own)
	}
	switch policy {
	case string(v1.RestartPolicyNever):
		return false
	case string(v1.RestartPolicyOnFailure):
		return exitCode != 0
	}
	return true
}

func matchesExit(rule v1.ContainerRestartRule, exitCode int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(rule.ExitCodes.Values, exitCode)
	switch rule.ExitCodes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	}
	return false
}

func validatePodIPs(c *check.Checker, status, old *v1.PodStatus, path *field.Path) {
	ips, known := ipsOf(status.PodIPs), ipsOf(old.PodIPs)
	validateIPPair(c, ips, known, status.PodIPs, path)
	switch {
	case (status.PodIP == "") != (len(ips) == 0):
		c.Invalid(path, status.PodIPs, "podIP and podIPs must either both be set or both be unset")
	case len(ips) > 0 && ips[0] != status.PodIP:
		c.Invalid(path.Index(0).Child("ip"), ips[0], "must be equal to `podIP`")
	}
}

func ipsOf(podIPs []v1.PodIP) []string {
	ips := make([]string, len(podIPs))
	for i := range podIPs {
		ips[i] = podIPs[i].IP
	}
	return ips
}

func validateHostIPs(c *check.Checker, status, old *v1.PodStatus, path *field.Path) {
	if len(status.HostIPs) == 0 {
		return
	}
	if status.HostIPs[0].IP != status.HostIP {
		c.Invalid(path.Index(0).Child("ip"), status.HostIPs[0].IP, "must be equal to `hostIP`")
	}
	ips, known := make([]string, len(status.HostIPs)), make([]string, len(old.HostIPs))
	for i := range ips {
		ips[i] = status.HostIPs[i].IP
	}
	for i := range known {
		known[i] = old.HostIPs[i].IP
	}
	validateIPPair(c, ips, known, status.HostIPs, path)
}

// validateIPPair checks one address, or one of each family. Addresses in known are not checked
// again.
func validateIPPair(c *check.Checker, ips, known []string, value any, path *field.Path) {
	for i, ip := range ips {
		c.IP(path.Index(i), ip, known)
	}
	if len(ips) < 2 {
		return
	}
	dualStack, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		c.Add(field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%v", err)))
	}
	if !dualStack || len(ips) > 2 {
		c.Invalid(path, value, "may specify no more than one IP for each IP family")
	}
}

func validateContainerUsers(c *check.Checker, pod *v1.Pod, path *field.Path) {
	for _, list := range []struct {
		name     string
		statuses []v1.ContainerStatus
	}{
		{"containerStatuses", pod.Status.ContainerStatuses},
		{"initContainerStatuses", pod.Status.InitContainerStatuses},
		{"ephemeralContainerStatuses", pod.Status.EphemeralContainerStatuses},
	} {
		for i, status := range list.statuses {
			if status.User == nil || status.User.Linux == nil {
				continue
			}
			validateLinuxUser(c, status.User.Linux, pod.Spec.OS, path.Child(list.name).Index(i).Child("user", "linux"))
		}
	}
}

// validateLinuxUser checks the user that a container runs as. The runtime reports it, so any user
// that the kernel knows is valid.
func validateLinuxUser(c *check.Checker, user *v1.LinuxContainerUser, os *v1.PodOS, path *field.Path) {
	switch {
	case os == nil, os.Name == v1.Linux:
	case os.Name == v1.Windows:
		c.Forbidden(path, "cannot be set for a windows pod")
		return
	default:
		return
	}
	if user.UID < 0 || user.UID > math.MaxUint32 {
		c.Invalid(path.Child("uid"), user.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32)))
	}
	c.Invalid(path.Child("gid"), user.GID, validation.IsValidGroupID(user.GID)...)
	for i, group := range user.SupplementalGroups {
		c.Invalid(path.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group)...)
	}
}

func validateClaimStatuses(c *check.Checker, pod *v1.Pod, path *field.Path) {
	seen := sets.Set[string]{}
	for i, status := range pod.Status.ResourceClaimStatuses {
		at := path.Index(i)
		if !slices.ContainsFunc(pod.Spec.ResourceClaims, func(claim v1.PodResourceClaim) bool { return claim.Name == status.Name }) {
			c.Invalid(at.Child("name"), status.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		check.Unique(c, at.Child("name"), seen, status.Name)
		c.OptionalDNSSubdomain(at.Child("resourceClaimName"), status.ResourceClaimName)
	}
}

// validateExtendedClaim checks the claim that was made for the extended resources of containers
// (KEP-5004).
func validateExtendedClaim(c *check.Checker, pod *v1.Pod, path *field.Path) {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return
	}
	if len(status.RequestMappings) == 0 {
		c.Required(path.Child("requestMappings"), "at least one request mapping is required")
	}
	seen := sets.Set[v1.ContainerExtendedResourceRequest]{}
	for i, mapping := range status.RequestMappings {
		at := path.Child("requestMappings").Index(i)
		switch container := containerNamed(&pod.Spec, mapping.ContainerName); {
		case container == nil:
			c.Invalid(at.Child("containerName"), mapping.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name")
		case !requests(container, mapping.ResourceName):
			c.Invalid(at.Child("resourceName"), mapping.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		c.DNSLabel(path.Child("requestName"), mapping.RequestName)
		if seen.Has(mapping) {
			c.Add(field.Duplicate(at.Child("containerName"), mapping.ContainerName),
				field.Duplicate(at.Child("resourceName"), mapping.ResourceName),
				field.Duplicate(at.Child("requestName"), mapping.RequestName))
		}
		seen.Insert(mapping)
	}
	c.RequiredDNSSubdomain(path.Child("resourceClaimName"), status.ResourceClaimName)
}

func containerNamed(spec *v1.PodSpec, name string) *v1.Container {
	for _, containers := range [][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range slices.Backward(containers) {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

func requests(container *v1.Container, name string) bool {
	_, found := container.Resources.Requests[v1.ResourceName(name)]
	return found
}

// validateDeviceHealth checks the health of a container's devices (KEP-4680). It ignores statuses
// of unknown containers.
func validateDeviceHealth(c *check.Checker, statuses []v1.ContainerStatus, containers []v1.Container, pod *v1.PodStatus, path *field.Path) {
	for i, status := range statuses {
		index := slices.IndexFunc(containers, func(container v1.Container) bool { return container.Name == status.Name })
		for j, allocated := range status.AllocatedResourcesStatus {
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			if index >= 0 {
				validateAllocatedName(c, allocated.Name, &containers[index], pod.ExtendedResourceClaimStatus, at.Child("name"))
			}
			seen := sets.Set[v1.ResourceID]{}
			for k, device := range allocated.Resources {
				devicePath := at.Child("resources").Index(k)
				check.OneOf(c, devicePath.Child("health"), device.Health,
					v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnhealthy, v1.ResourceHealthStatusUnknown)
				validateHealthMessage(c, device.Message, devicePath.Child("message"))
				check.Unique(c, devicePath.Child("resourceID"), seen, device.ResourceID)
			}
		}
	}
}

func validateHealthMessage(c *check.Checker, message *string, path *field.Path) {
	switch {
	case message == nil:
	case *message == "":
		c.Required(path, "must be non-empty if specified")
	case len(*message) > v1.ResourceHealthMessageMaxLength:
		c.TooLong(path, v1.ResourceHealthMessageMaxLength)
	}
}

// validateAllocatedName requires that the container requested the resource, by name or as
// claim:<claim>[/<request>].
func validateAllocatedName(c *check.Checker, name v1.ResourceName, container *v1.Container, extended *v1.PodExtendedResourceClaimStatus, path *field.Path) {
	ref, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		if !requests(container, string(name)) {
			c.Invalid(path, name, "must match one of the container's resource requests")
		}
		return
	}
	claim, request, hasRequest := strings.Cut(ref, "/")
	for _, own := range container.Resources.Claims {
		if own.Name == claim && own.Request == request && hasRequest == (request != "") {
			return
		}
	}
	if extended != nil && request != "" && claim != "" && extended.ResourceClaimName == claim {
		for _, mapping := range extended.RequestMappings {
			quantity := container.Resources.Requests[v1.ResourceName(mapping.ResourceName)]
			if mapping.ContainerName == container.Name && mapping.RequestName == request && !quantity.IsZero() {
				return
			}
		}
	}
	c.Invalid(path, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
}
