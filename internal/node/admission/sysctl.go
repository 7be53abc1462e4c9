// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// safeSysctls are the documented sysctls that a pod may set: they are namespaced and affect no other
// pod. The value is the first kernel version that namespaces the sysctl; empty for all.
var safeSysctls = map[string]string{
	"kernel.shm_rmid_forced":              "",
	"net.ipv4.ip_local_port_range":        "",
	"net.ipv4.tcp_syncookies":             "",
	"net.ipv4.ping_group_range":           "",
	"net.ipv4.ip_unprivileged_port_start": "",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_notsent_lowat":          "4.6",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_wmem":                   "4.15",
	"net.ipv4.tcp_slow_start_after_idle":  "4.15",
}

// CheckSysctls refuses sysctls that could affect other pods or, in a namespace that the pod shares with
// the node, the node. The node's administrator may allow unsafe ones, by patterns that may end with an asterisk.
func CheckSysctls(node *v1.Node, p *v1.Pod, unsafe []string) *pod.Refusal {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		if problem := problemOfSysctl(node, p, name, unsafe); problem != "" {
			return &pod.Refusal{Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %q %s", name, problem)}
		}
	}
	return nil
}

func problemOfSysctl(node *v1.Node, p *v1.Pod, name string, unsafe []string) string {
	namespace, allowed := allowedSysctl(node, name, unsafe)
	shared := map[sysctl.Namespace]bool{
		sysctl.IPCNamespace: p.Spec.HostIPC, sysctl.NetNamespace: p.Spec.HostNetwork,
		sysctl.UserNamespace: p.Spec.HostUsers == nil || *p.Spec.HostUsers,
	}
	switch {
	case !allowed:
		return "not allowlisted"
	case shared[namespace]:
		return fmt.Sprintf("not allowed with host %s enabled", namespace)
	}
	return ""
}

// allowedSysctl returns the namespace of a sysctl, and whether it is safe or allowed by a pattern.
func allowedSysctl(node *v1.Node, name string, unsafe []string) (namespace sysctl.Namespace, allowed bool) {
	if since, safe := safeSysctls[name]; safe && kernelAtLeast(node.Status.NodeInfo.KernelVersion, since) {
		namespace, _, _ = sysctl.GetNamespace(name)
		return namespace, true
	}
	for _, pattern := range unsafe {
		namespace, wanted, isPrefix := sysctl.GetNamespace(pattern)
		if wanted == name || isPrefix && strings.HasPrefix(name, wanted) {
			return namespace, true
		}
	}
	return sysctl.UnknownNamespace, false
}

// kernelAtLeast reports whether a kernel has at least a version. A kernel without a version, as on a
// simulated node, counts as new enough.
func kernelAtLeast(kernel, since string) bool {
	if since == "" {
		return true
	}
	have, err := version.ParseGeneric(kernel)
	return err != nil || have.AtLeast(version.MustParseGeneric(since))
}
