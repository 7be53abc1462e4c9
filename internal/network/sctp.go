// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// withoutSCTP reports the Services and pods with SCTP ports on a kernel without SCTP, one event for each.
type withoutSCTP struct {
	// lacks returns what the kernel lacks; "" if nothing. It is called for the first of them.
	lacks func() string
	told  map[string]bool
}

func usesSCTP(svc *v1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p v1.ServicePort) bool { return p.Protocol == v1.ProtocolSCTP })
}

// checkSCTP records an event on a Service or pod if it uses an SCTP port and the kernel lacks something for it.
func (n *Network) checkSCTP(key string, object runtime.Object, uses bool) {
	if !uses {
		delete(n.sctp.told, key)
		return
	}
	if lacks := n.sctp.lacks(); lacks != "" && !n.sctp.told[key] {
		n.sctp.told[key] = true
		n.options.Events.Eventf(object, v1.EventTypeWarning, "SCTPNotSupported", "The SCTP ports of this %s do not work on node %s: %s", kindOf(object), n.options.Node, lacks)
	}
}

func kindOf(object runtime.Object) string {
	if _, isPod := object.(*v1.Pod); isPod {
		return "pod"
	}
	return "Service"
}

// lacksSCTP returns what the kernel lacks for SCTP ports of Services. The kernel may load the module of SCTP for that.
func lacksSCTP() string {
	if !tracksSCTP() {
		return "its kernel cannot track SCTP connections (CONFIG_NF_CT_PROTO_SCTP)"
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
		return "its kernel has no SCTP (CONFIG_IP_SCTP); if it is a module: modprobe sctp"
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return ""
}
