// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPodSecurity(t *testing.T) {
	security := func(security v1.PodSecurityContext) func(*v1.Pod) {
		return spec(func(spec *v1.PodSpec) { spec.SecurityContext = &security })
	}
	const ids = "must be between 0 and 2147483647, inclusive"
	createCases{
		"ids": {
			change: security(v1.PodSecurityContext{RunAsUser: new(int64(-1)), RunAsGroup: new(int64(1 << 31)), FSGroup: new(int64(-1)), SupplementalGroups: []int64{1, -1}}),
			want: []string{
				`spec.securityContext.fsGroup: Invalid value: -1: ` + ids,
				`spec.securityContext.runAsUser: Invalid value: -1: ` + ids,
				`spec.securityContext.runAsGroup: Invalid value: 2147483648: ` + ids,
				`spec.securityContext.supplementalGroups[1]: Invalid value: -1: ` + ids,
			},
		},
		"sysctls": {
			change: security(v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.shm_rmid_forced"}, {Name: "kernel/sem"}, {Name: "kernel/sem"}, {Name: "A"}, {}}}),
			want: []string{
				`spec.securityContext.sysctls[2].name: Duplicate value: "kernel/sem"`,
				`spec.securityContext.sysctls[3].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`,
				`spec.securityContext.sysctls[4].name: Required value`,
			},
		},
		"sysctls of the host": {
			change: spec(func(spec *v1.PodSpec) {
				spec.HostNetwork, spec.HostIPC = true, true
				spec.SecurityContext.Sysctls = []v1.Sysctl{{Name: "net.ipv4.tcp_syncookies"}, {Name: "kernel.sem"}}
			}),
			want: []string{
				`spec.securityContext.sysctls[0].name: Invalid value: "net.ipv4.tcp_syncookies": may not be specified when 'hostNetwork' is true`,
				`spec.securityContext.sysctls[1].name: Invalid value: "kernel.sem": may not be specified when 'hostIPC' is true`,
			},
		},
		"unknown policies": {
			change: security(v1.PodSecurityContext{
				FSGroupChangePolicy:      new(v1.PodFSGroupChangePolicy("Never")),
				SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicy("Loose")),
				SELinuxChangePolicy:      new(v1.PodSELinuxChangePolicy("Not")),
			}),
			want: []string{
				`spec.securityContext.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"`,
				`spec.securityContext.supplementalGroupsPolicy: Unsupported value: "Loose": supported values: "Merge", "Strict"`,
				`spec.securityContext.seLinuxChangePolicy: Unsupported value: "Not": supported values: "MountOption", "Recursive"`,
			},
		},
		"seccomp": {
			change: security(v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}}),
			want:   []string{`spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost`},
		},
		"AppArmor": {
			change: security(v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new(" a")}}),
			want:   []string{`spec.securityContext.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace`},
		},
		"hostPID and shareProcessNamespace": {
			change: spec(func(spec *v1.PodSpec) { spec.HostPID, spec.ShareProcessNamespace = true, new(true) }),
			want:   []string{`spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled`},
		},
		"a user namespace": {
			change: func(pod *v1.Pod) {
				withVolume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})(pod)
				pod.Spec.HostUsers = new(false)
				pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = true, true, true
				pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
			},
			want: []string{
				"spec.hostNetwork: Forbidden: when `hostUsers` is false",
				"spec.HostPID: Forbidden: when `hostUsers` is false",
				"spec.HostIPC: Forbidden: when `hostUsers` is false",
				"spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
			},
		},
	}.run(t)
}

func TestContainerSecurity(t *testing.T) {
	security := func(security v1.SecurityContext) func(*v1.Pod) {
		return first(func(c *v1.Container) { c.SecurityContext = &security })
	}
	const path = "spec.containers[0].securityContext"
	createCases{
		"privileged": {change: security(v1.SecurityContext{Privileged: new(true)})},
		"privileged without escalation": {
			change: security(v1.SecurityContext{Privileged: new(true), AllowPrivilegeEscalation: new(false)}),
			want:   []string{path + ": Invalid value: {\"privileged\":true,\"allowPrivilegeEscalation\":false}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		},
		"CAP_SYS_ADMIN without escalation": {
			change: security(v1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &v1.Capabilities{Add: []v1.Capability{"CAP_SYS_ADMIN"}}}),
			want:   []string{path + ": Invalid value: {\"capabilities\":{\"add\":[\"CAP_SYS_ADMIN\"]},\"allowPrivilegeEscalation\":false}: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"},
		},
		"unmasked /proc in the host user namespace": {
			change: security(v1.SecurityContext{ProcMount: new(v1.UnmaskedProcMount)}),
			want:   []string{path + ".procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
		},
		"profiles": {
			change: security(v1.SecurityContext{
				SeccompProfile:  &v1.SeccompProfile{Type: "Best"},
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined, LocalhostProfile: new("a")},
			}),
			want: []string{
				path + `.seccompProfile.type: Unsupported value: "Best": supported values: "Localhost", "RuntimeDefault", "Unconfined"`,
				path + `.appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost`,
			},
		},
	}.run(t)
}

func TestOperatingSystem(t *testing.T) {
	createCases{
		"unknown": {
			change: spec(func(spec *v1.PodSpec) { spec.OS = &v1.PodOS{Name: "plan9"} }),
			want:   []string{`spec.os: Unsupported value: "plan9": supported values: "linux", "windows"`},
		},
		"no name": {
			change: spec(func(spec *v1.PodSpec) { spec.OS = &v1.PodOS{} }),
			want:   []string{`spec.os.name: Required value`},
		},
		"Windows options on Linux": {
			change: spec(func(spec *v1.PodSpec) {
				spec.OS = &v1.PodOS{Name: v1.Linux}
				spec.SecurityContext.WindowsOptions = &v1.WindowsSecurityContextOptions{}
				spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}}
			}),
			want: []string{
				`spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod`,
				`spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod`,
			},
		},
		"Linux options on Windows": {
			change: spec(func(spec *v1.PodSpec) {
				spec.OS = &v1.PodOS{Name: v1.Windows}
				spec.HostPID = true
				spec.SecurityContext.FSGroup = new(int64(1))
				spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: new(true)}
				spec.Resources = &v1.ResourceRequirements{}
			}),
			want: []string{
				`spec.resources: Forbidden: may not be set for a windows pod`,
				`spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod`,
				`spec.hostPID: Forbidden: cannot be set for a windows pod`,
				`spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod`,
			},
		},
		"host processes in some containers": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Containers = append(spec.Containers, container("other"))
				spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{HostProcess: new(true)}}
			}),
			want: []string{
				`spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess containers`,
				`spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers`,
			},
		},
		"contradicting host processes": {
			change: spec(func(spec *v1.PodSpec) {
				spec.SecurityContext.WindowsOptions = &v1.WindowsSecurityContextOptions{HostProcess: new(false)}
				spec.HostNetwork = true
				spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{HostProcess: new(true)}}
			}),
			want: []string{`spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: true: pod hostProcess value must be identical if both are specified, was false`},
		},
	}.run(t)
}

func TestUserNames(t *testing.T) {
	for name, want := range map[string]string{
		"ContainerUser":                   "",
		`NT AUTHORITY\NETWORK`:            "",
		`example.com\user`:                "",
		"":                                "runAsUserName cannot be an empty string",
		"a\tb":                            "runAsUserName cannot contain control characters",
		`a\b\c`:                           "runAsUserName cannot contain more than one backslash",
		`.d\u`:                            "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
		`d\`:                              "runAsUserName's User cannot be empty",
		". .":                             "runAsUserName's User cannot contain only periods or spaces",
		"a*b":                             `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`,
		strings.Repeat("u", 105):          "runAsUserName's User length must not be longer than 104 characters",
		strings.Repeat("d.", 128) + `d\u`: "runAsUserName's Domain length must be under 256 characters",
	} {
		if got := strings.Join(userNameProblems(name), "; "); got != want {
			t.Errorf("userNameProblems(%q) = %q, want %q", name, got, want)
		}
	}
}
