// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *specChecker) podSecurity(path *field.Path) {
	security := c.spec.SecurityContext
	if security == nil {
		return
	}
	validateGroupID(c.Checker, path.Child("fsGroup"), security.FSGroup)
	validateUserID(c.Checker, path.Child("runAsUser"), security.RunAsUser)
	validateGroupID(c.Checker, path.Child("runAsGroup"), security.RunAsGroup)
	for i, group := range security.SupplementalGroups {
		validateGroupID(c.Checker, path.Child("supplementalGroups").Index(i), &group)
	}
	c.sysctls(security.Sysctls, path.Child("sysctls"))
	check.OptionalOneOf(c, path.Child("fsGroupChangePolicy"), security.FSGroupChangePolicy,
		v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)
	validateSeccomp(c.Checker, security.SeccompProfile, path.Child("seccompProfile"))
	validateWindowsOptions(c.Checker, security.WindowsOptions, path.Child("windowsOptions"))
	validateAppArmor(c.Checker, security.AppArmorProfile, path.Child("appArmorProfile"))
	check.OptionalOneOf(c, path.Child("supplementalGroupsPolicy"), security.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	check.OptionalOneOf(c, path.Child("seLinuxChangePolicy"), security.SELinuxChangePolicy,
		v1.SELinuxChangePolicyMountOption, v1.SELinuxChangePolicyRecursive)
}

const maxSysctlLength = 253

// sysctlName matches names of kernel parameters, see sysctl.d(5): segments separated by dots or
// slashes.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *specChecker) sysctls(sysctls []v1.Sysctl, path *field.Path) {
	seen := sets.Set[string]{}
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.Required(at, "")
		case len(s.Name) > maxSysctlLength || !sysctlName.MatchString(s.Name):
			c.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlLength, sysctlName))
		case seen.Has(s.Name):
			c.Duplicate(at, s.Name)
		}
		seen.Insert(s.Name)
		c.hostSysctl(s.Name, at)
	}
}

// hostSysctl forbids parameters of kernel namespaces that the pod shares with the host.
func (c *specChecker) hostSysctl(name string, path *field.Path) {
	switch namespace, _, _ := sysctl.GetNamespace(name); {
	case c.spec.HostNetwork && namespace == sysctl.NetNamespace:
		c.Invalid(path, name, "may not be specified when 'hostNetwork' is true")
	case c.spec.HostIPC && namespace == sysctl.IPCNamespace:
		c.Invalid(path, name, "may not be specified when 'hostIPC' is true")
	}
}

func (c *specChecker) containerSecurity(security *v1.SecurityContext, path *field.Path) {
	if security == nil {
		return
	}
	validateUserID(c.Checker, path.Child("runAsUser"), security.RunAsUser)
	validateGroupID(c.Checker, path.Child("runAsGroup"), security.RunAsGroup)
	if mount := security.ProcMount; mount != nil {
		check.OneOf(c, path.Child("procMount"), *mount, v1.DefaultProcMount, v1.UnmaskedProcMount)
		if *mount == v1.UnmaskedProcMount && usesHostUsers(c.spec) {
			c.Invalid(path.Child("procMount"), *mount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	validateSeccomp(c.Checker, security.SeccompProfile, path.Child("seccompProfile"))
	validatePrivilegeEscalation(c.Checker, security, path)
	validateWindowsOptions(c.Checker, security.WindowsOptions, path.Child("windowsOptions"))
	validateAppArmor(c.Checker, security.AppArmorProfile, path.Child("appArmorProfile"))
}

// validatePrivilegeEscalation forbids allowPrivilegeEscalation=false for containers that have all
// privileges anyway.
func validatePrivilegeEscalation(c *check.Checker, security *v1.SecurityContext, path *field.Path) {
	if security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation {
		return
	}
	if isPrivileged(security) {
		c.Invalid(path, security, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if security.Capabilities == nil {
		return
	}
	for _, capability := range security.Capabilities.Add {
		if capability == "CAP_SYS_ADMIN" {
			c.Invalid(path, security, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
}

func usesHostUsers(spec *v1.PodSpec) bool {
	return spec.HostUsers == nil || *spec.HostUsers
}

// hostUsers forbids that a pod with its own user namespace (KEP-127) shares other namespaces with
// the host, or uses devices, whose owners cannot be mapped.
func (c *specChecker) hostUsers(path *field.Path) {
	const detail = "when `hostUsers` is false"
	if usesHostUsers(c.spec) {
		return
	}
	if c.spec.HostNetwork {
		c.Forbidden(path.Child("hostNetwork"), detail)
	}
	if c.spec.HostPID {
		c.Forbidden(path.Child("HostPID"), detail)
	}
	if c.spec.HostIPC {
		c.Forbidden(path.Child("HostIPC"), detail)
	}
	for at, container := range allContainers(c.spec, path) {
		if len(container.VolumeDevices) > 0 {
			c.Forbidden(at.Child("volumeDevices"), detail)
		}
	}
}

func validateSeccomp(c *check.Checker, profile *v1.SeccompProfile, path *field.Path) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.Required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		check.OneOf(c, path.Child("type"), profile.Type,
			v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	isLocal := profile.Type == v1.SeccompProfileTypeLocalhost
	switch {
	case isLocal && profile.LocalhostProfile == nil:
		c.Required(at, "must be set when seccomp type is Localhost")
	case isLocal:
		c.RelativePath(at, *profile.LocalhostProfile)
	case profile.LocalhostProfile != nil:
		c.Invalid(at, profile, "can only be set when seccomp type is Localhost")
	}
}

func validateAppArmor(c *check.Checker, profile *v1.AppArmorProfile, path *field.Path) {
	const (
		required  = "must be set when AppArmor type is Localhost"
		maxLength = 4095 // PATH_MAX - 1
	)
	if profile == nil {
		return
	}
	at, name := path.Child("localhostProfile"), profile.LocalhostProfile
	switch profile.Type {
	case v1.AppArmorProfileTypeLocalhost:
		switch {
		case name == nil:
			c.Required(at, required)
			return
		case strings.TrimSpace(*name) != *name:
			c.Invalid(at, *name, "must not be padded with whitespace")
		case *name == "":
			c.Required(at, required)
		}
		c.MaxBytes(at, *name, maxLength)
	case v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined:
		if name != nil {
			c.Invalid(at, *name, "can only be set when AppArmor type is Localhost")
		}
	case "":
		c.Required(path.Child("type"), "type is required when appArmorProfile is set")
	default:
		check.OneOf(c, path.Child("type"), profile.Type,
			v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	}
}
