// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

func TestSysctls(t *testing.T) {
	for _, test := range []struct {
		name, kernel string
		change       func(*v1.PodSpec)
		want         string
		unsafe       []string
	}{
		{name: "net.ipv4.tcp_syncookies", kernel: "3.10.0-1160.el7.x86_64"},
		{name: "net/ipv4/tcp_syncookies", kernel: "6.1.0"},
		{name: "kernel.shm_rmid_forced", kernel: "6.1.0"},
		{name: "kernel.msgmax", kernel: "6.1.0", want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{name: "kernel/msgmax", kernel: "6.1.0", want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{name: "net.core.somaxconn", kernel: "6.1.0", want: `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{name: "net.ipv4.tcp_rmem", kernel: "4.15.0-20-generic"},
		{name: "net.ipv4.tcp_rmem", kernel: "4.14.9", want: `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`},
		{name: "net.ipv4.tcp_rmem", kernel: "simulated"},
		{name: "net.ipv4.tcp_syncookies", kernel: "6.1.0", change: func(s *v1.PodSpec) { s.HostNetwork = true },
			want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{name: "kernel.shm_rmid_forced", kernel: "6.1.0", change: func(s *v1.PodSpec) { s.HostIPC = true },
			want: `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{name: "kernel.shm_rmid_forced", kernel: "6.1.0", change: func(s *v1.PodSpec) { s.HostNetwork = true }},
		{name: "kernel.msgmax", kernel: "6.1.0", unsafe: []string{"kernel.msg*"}},
		{name: "kernel/msgmax", kernel: "6.1.0", unsafe: []string{"kernel/msgmax"}},
		{name: "kernel.msgmax", kernel: "6.1.0", unsafe: []string{"kernel.msgmni"}, want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{name: "kernel.msgmaxi", kernel: "6.1.0", unsafe: []string{"kernel.msgmax"}, want: `forbidden sysctl: "kernel.msgmaxi" not allowlisted`},
		{name: "net.core.somaxconn", kernel: "6.1.0", unsafe: []string{"kernel.msg*", "net.*"}},
		{name: "net.core.somaxconn", kernel: "6.1.0", unsafe: []string{"net.*"}, change: func(s *v1.PodSpec) { s.HostNetwork = true },
			want: `forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled`},
		{name: "kernel.shm_next_id", kernel: "6.1.0", unsafe: []string{"kernel.shm*"}, change: func(s *v1.PodSpec) { s.HostIPC = true },
			want: `forbidden sysctl: "kernel.shm_next_id" not allowed with host IPC enabled`},
		{name: "user.max_user_namespaces", kernel: "6.1.0", unsafe: []string{"user.*"},
			want: `forbidden sysctl: "user.max_user_namespaces" not allowed with host User enabled`},
		{name: "user.max_user_namespaces", kernel: "6.1.0", unsafe: []string{"user.*"}, change: func(s *v1.PodSpec) { s.HostUsers = new(false) }},
	} {
		node := &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KernelVersion: test.kernel}}}
		p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: test.name, Value: "1"}}}}}
		if test.change != nil {
			test.change(&p.Spec)
		}
		node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: onePod}
		got := ""
		if refusal := Check(klog.Background(), node, p, &Load{}, test.unsafe...); refusal != nil {
			got = refusal.Message
			if refusal.Reason != "SysctlForbidden" {
				t.Errorf("%s: refused for %s", test.name, refusal.Reason)
			}
		}
		if got != test.want {
			t.Errorf("%s on kernel %s: %q, want %q", test.name, test.kernel, got, test.want)
		}
	}
}
