// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func isWindows(spec *v1.PodSpec) bool {
	return spec.OS != nil && spec.OS.Name == v1.Windows
}

// os checks spec.os, and forbids fields of other operating systems.
func (c *specChecker) os(path *field.Path) {
	if c.spec.OS == nil {
		return
	}
	switch c.spec.OS.Name {
	case v1.Linux:
		c.nothingOfWindows(path)
	case v1.Windows:
		c.nothingOfLinux(path)
	case "":
		c.Required(path.Child("os", "name"), "")
	default:
		check.OneOf(c, path.Child("os"), c.spec.OS.Name, v1.Linux, v1.Windows)
	}
}

func (c *specChecker) nothingOfWindows(path *field.Path) {
	const detail = "windows options cannot be set for a linux pod"
	if security := c.spec.SecurityContext; security != nil && security.WindowsOptions != nil {
		c.Forbidden(path.Child("securityContext", "windowsOptions"), detail)
	}
	for at, container := range allContainers(c.spec, path) {
		if security := container.SecurityContext; security != nil && security.WindowsOptions != nil {
			c.Forbidden(at.Child("securityContext", "windowsOptions"), detail)
		}
	}
}

// ofLinux is a field that has no meaning on Windows.
type ofLinux struct {
	name string
	set  bool
}

func forbidLinuxFields(c *check.Checker, fields []ofLinux, path *field.Path) {
	for _, f := range fields {
		if f.set {
			c.Forbidden(path.Child(f.name), "cannot be set for a windows pod")
		}
	}
}

func (c *specChecker) nothingOfLinux(path *field.Path) {
	spec := c.spec
	if security := spec.SecurityContext; security != nil {
		forbidLinuxFields(c.Checker, []ofLinux{
			{"appArmorProfile", security.AppArmorProfile != nil},
			{"seLinuxOptions", security.SELinuxOptions != nil},
			{"seccompProfile", security.SeccompProfile != nil},
			{"fsGroup", security.FSGroup != nil},
			{"fsGroupChangePolicy", security.FSGroupChangePolicy != nil},
			{"sysctls", len(security.Sysctls) > 0},
			{"runAsUser", security.RunAsUser != nil},
			{"runAsGroup", security.RunAsGroup != nil},
			{"supplementalGroups", security.SupplementalGroups != nil},
			{"supplementalGroupsPolicy", security.SupplementalGroupsPolicy != nil},
			{"seLinuxChangePolicy", security.SELinuxChangePolicy != nil},
		}, path.Child("securityContext"))
	}
	forbidLinuxFields(c.Checker, []ofLinux{
		{"hostUsers", spec.HostUsers != nil},
		{"hostPID", spec.HostPID},
		{"hostIPC", spec.HostIPC},
		{"shareProcessNamespace", spec.ShareProcessNamespace != nil},
	}, path)
	for at, container := range allContainers(spec, path) {
		security := container.SecurityContext
		if security == nil {
			continue
		}
		forbidLinuxFields(c.Checker, []ofLinux{
			{"appArmorProfile", security.AppArmorProfile != nil},
			{"seLinuxOptions", security.SELinuxOptions != nil},
			{"seccompProfile", security.SeccompProfile != nil},
			{"capabilities", security.Capabilities != nil},
			{"readOnlyRootFilesystem", security.ReadOnlyRootFilesystem != nil},
			{"privileged", security.Privileged != nil},
			{"allowPrivilegeEscalation", security.AllowPrivilegeEscalation != nil},
			{"procMount", security.ProcMount != nil},
			{"runAsUser", security.RunAsUser != nil},
			{"runAsGroup", security.RunAsGroup != nil},
		}, at.Child("securityContext"))
	}
}

// hostProcess: the containers of a Windows pod are all host processes or none
// is, and host processes are on the host's network (KEP-1981).
func (c *specChecker) hostProcess(path *field.Path) {
	ofPod := hostProcessOption(c.spec.SecurityContext)
	containers, hostProcesses := 0, 0
	for at, container := range allContainers(c.spec, path) {
		containers++
		own := containerHostProcess(container)
		if ofPod != nil && own != nil && *ofPod != *own {
			c.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod))
		}
		if own == nil {
			own = ofPod
		}
		if own != nil && *own {
			hostProcesses++
		}
	}
	if hostProcesses == 0 {
		return
	}
	if hostProcesses != containers {
		c.Invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !c.spec.HostNetwork {
		c.Invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

func hostProcessOption(security *v1.PodSecurityContext) *bool {
	if security == nil || security.WindowsOptions == nil {
		return nil
	}
	return security.WindowsOptions.HostProcess
}

func containerHostProcess(container *v1.Container) *bool {
	security := container.SecurityContext
	if security == nil || security.WindowsOptions == nil {
		return nil
	}
	return security.WindowsOptions.HostProcess
}

func validateWindowsOptions(c *check.Checker, options *v1.WindowsSecurityContextOptions, path *field.Path) {
	const maxCredentialKiB = 64
	if options == nil {
		return
	}
	c.OptionalDNSSubdomain(path.Child("gmsaCredentialSpecName"), options.GMSACredentialSpecName)
	if spec, at := options.GMSACredentialSpec, path.Child("gmsaCredentialSpec"); spec != nil {
		switch {
		case *spec == "":
			c.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string")
		case len(*spec) > maxCredentialKiB*1024:
			c.Invalid(at, *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialKiB))
		}
	}
	if name := options.RunAsUserName; name != nil {
		c.Invalid(path.Child("runAsUserName"), *name, userNameProblems(*name)...)
	}
}

// A Windows user name is [domain\]user, see "Naming conventions in Active
// Directory": the domain has a NetBIOS or a DNS name.
var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDNSName    = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	forbiddenInUser   = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	onlyDotsAndBlanks = regexp.MustCompile(`^[\. ]+$`)
)

const (
	maxUserNameDomain  = 256
	maxUserNameAccount = 104
)

func userNameProblems(name string) []string {
	domain, user, hasDomain := strings.Cut(name, `\`)
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacters.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{"runAsUserName cannot contain more than one backslash"}
	case !hasDomain:
		domain, user = "", name
	}
	var problems []string
	report := func(broken bool, format string, args ...any) {
		if broken {
			problems = append(problems, "runAsUserName's "+fmt.Sprintf(format, args...))
		}
	}
	report(len(domain) >= maxUserNameDomain, "Domain length must be under %d characters", maxUserNameDomain)
	report(hasDomain && !netBIOSName.MatchString(domain) && !windowsDNSName.MatchString(domain),
		"Domain doesn't match the NetBios nor the DNS format")
	report(user == "", "User cannot be empty")
	report(len(user) > maxUserNameAccount, "User length must not be longer than %d characters", maxUserNameAccount)
	report(onlyDotsAndBlanks.MatchString(user), "User cannot contain only periods or spaces")
	report(forbiddenInUser.MatchString(user), `User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	return problems
}
