// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Lacks returns a line about each feature that the machine's kernel lacks and that a node can run without: what does
// not work then, and how to get it. [New] fails if the kernel lacks what all rules need.
func Lacks(ctx context.Context) []string {
	var lines []string
	if isAbsent(conntrackError()) {
		lines = append(lines, "the kernel has no nf_conntrack_netlink: clients of a UDP Service may be sent to endpoints that are gone, "+
			"as long as they send; modprobe nf_conntrack_netlink, or a kernel with CONFIG_NF_CT_NETLINK")
	}
	if !knowsSCTP(ctx) {
		lines = append(lines, "the kernel has no SCTP: SCTP ports of Services and pods do not work; "+
			"a kernel with CONFIG_IP_SCTP and CONFIG_NF_CT_PROTO_SCTP has it, or its module sctp")
	}
	return lines
}

// conntrackStatistics is the request IPCTNL_MSG_CT_GET_STATS of linux/netfilter/nfnetlink_conntrack.h.
const conntrackStatistics = 5

// conntrackError returns the error of a cheap request to the kernel's table of connections. The kernel loads the module
// for it.
func conntrackError() error { return netfilterError(unix.NFNL_SUBSYS_CTNETLINK, conntrackStatistics) }

// netfilterError returns the error of a request to a subsystem of netfilter.
func netfilterError(subsystem, message int) error {
	request := nl.NewNetlinkRequest(subsystem<<8|message, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

// isAbsent reports whether an error of netfilterError means that the kernel does not have the subsystem. Without the
// right to ask, the error is another one.
func isAbsent(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// knowsSCTP reports whether the kernel has SCTP, or a module of it. It does not load the module, as the first SCTP
// socket does.
func knowsSCTP(ctx context.Context) bool {
	if !tracksSCTP() {
		return false
	}
	if _, err := os.Stat("/proc/sys/net/sctp"); err == nil {
		return true
	}
	return exec.CommandContext(ctx, "modprobe", "--dry-run", "--quiet", "sctp").Run() == nil
}

// tracksSCTP reports whether the kernel tracks SCTP connections, which their translation needs.
func tracksSCTP() bool {
	_, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established")
	return !errors.Is(err, fs.ErrNotExist)
}
