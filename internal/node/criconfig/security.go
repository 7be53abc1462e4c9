// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The paths of /proc and /sys that a container cannot see or cannot change unless its procMount
// is Unmasked. The lists are Docker's, which all runtimes share.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// namespaces returns the pod's namespace modes. Each container has a process namespace of its
// own unless the pod shares the node's or its containers'.
func namespaces(pod *v1.Pod) *runtimeapi.NamespaceOption {
	options := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Ipc:     runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		options.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch share := pod.Spec.ShareProcessNamespace; {
	case pod.Spec.HostPID:
		options.Pid = runtimeapi.NamespaceMode_NODE
	case share != nil && *share:
		options.Pid = runtimeapi.NamespaceMode_POD
	}
	return options
}

// mergeContexts merges the security contexts of the pod and the container. The container's
// fields take precedence.
func mergeContexts(pod *v1.Pod, c *v1.Container) v1.SecurityContext {
	var sc v1.SecurityContext
	if c.SecurityContext != nil {
		sc = *c.SecurityContext
	}
	psc := pod.Spec.SecurityContext
	if psc == nil {
		return sc
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser = psc.RunAsUser
	}
	if sc.RunAsGroup == nil {
		sc.RunAsGroup = psc.RunAsGroup
	}
	if sc.RunAsNonRoot == nil {
		sc.RunAsNonRoot = psc.RunAsNonRoot
	}
	if sc.SELinuxOptions == nil {
		sc.SELinuxOptions = psc.SELinuxOptions
	}
	if sc.SeccompProfile == nil {
		sc.SeccompProfile = psc.SeccompProfile
	}
	if sc.AppArmorProfile == nil {
		sc.AppArmorProfile = psc.AppArmorProfile
	}
	return sc
}

// containerSecurity returns the container's security context for the runtime.
func (h Host) containerSecurity(pod *v1.Pod, c *v1.Container, image Image) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := mergeContexts(pod, c)
	if err := checkNonRoot(pod, c, sc, image); err != nil {
		return nil, err
	}
	profile, err := h.seccomp(sc.SeccompProfile)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		Privileged:       isTrue(sc.Privileged),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       isFalse(sc.AllowPrivilegeEscalation),
		Capabilities:     capabilities(sc.Capabilities),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		RunAsGroup:       int64Value(sc.RunAsGroup),
		Seccomp:          profile,
	}
	//lint:ignore SA1019 runtimes as old as containerd 1.6 read only the deprecated field
	out.Apparmor, out.ApparmorProfile = appArmor(sc.AppArmorProfile)
	if out.RunAsUser = int64Value(sc.RunAsUser); out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = int64Value(image.UID), image.Username
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		out.SupplementalGroups = supplementalGroups(psc)
		out.SupplementalGroupsPolicy = groupsPolicy(psc)
	}
	return out, nil
}

// sandboxSecurity returns the sandbox's security context for the runtime. The pause process
// needs no privileges, so it always runs under the runtime's default seccomp profile.
func sandboxSecurity(pod *v1.Pod, users *runtimeapi.UserNamespace) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod),
		Privileged:       anyPrivileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	out.NamespaceOptions.UsernsOptions = users
	if psc := pod.Spec.SecurityContext; psc != nil {
		out.RunAsUser, out.RunAsGroup = int64Value(psc.RunAsUser), int64Value(psc.RunAsGroup)
		out.SelinuxOptions = selinux(psc.SELinuxOptions)
		out.SupplementalGroups = supplementalGroups(psc)
		out.SupplementalGroupsPolicy = groupsPolicy(psc)
		if out.RunAsUser == nil {
			out.RunAsGroup = nil // CRI refuses a group without a user
		}
	}
	return out
}

func anyPrivileged(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && isTrue(sc.Privileged) {
				return true
			}
		}
	}
	return false
}

// checkNonRoot enforces runAsNonRoot. Only a numeric user can be checked.
func checkNonRoot(pod *v1.Pod, c *v1.Container, sc v1.SecurityContext, image Image) error {
	where := fmt.Sprintf("(pod: %q, container: %s)", FullName(pod), c.Name)
	switch {
	case !isTrue(sc.RunAsNonRoot):
		return nil
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case sc.RunAsUser != nil:
		return nil
	case image.UID == nil && image.Username != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", image.Username, where)
	case image.UID == nil || *image.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	return nil
}

func supplementalGroups(psc *v1.PodSecurityContext) []int64 {
	var groups []int64
	if psc.FSGroup != nil {
		groups = append(groups, *psc.FSGroup)
	}
	return append(groups, psc.SupplementalGroups...)
}

func groupsPolicy(psc *v1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if psc.SupplementalGroupsPolicy != nil && *psc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// seccomp returns the profile for the runtime. A container without one is unconfined unless the node has a default.
func (h Host) seccomp(p *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil && h.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p == nil || p.Type != v1.SeccompProfileTypeLocalhost:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(h.Layout.Root, "seccomp", *p.LocalhostProfile),
	}, nil
}

// appArmor returns the profile for the runtime, in CRI's current form and as the string that
// older runtimes read. Without a profile the runtime chooses one.
func appArmor(p *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, string) {
	switch {
	case p == nil:
		return nil, ""
	case p.Type == v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, "runtime/default"
	case p.Type == v1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile,
		}, "localhost/" + *p.LocalhostProfile
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, "unconfined"
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }
