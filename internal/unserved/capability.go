// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"fmt"
	"slices"
	"strings"
)

// capabilities are those of Linux, from its capability.h, and ALL, which container runtimes know as well.
var capabilities = strings.Fields(`
	ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER
	FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE
	NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE
	SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM`)

// notACapability returns why a container runtime ignores the name of a capability, or "".
func notACapability(name string) string {
	upper := strings.ToUpper(name)
	if slices.Contains(capabilities, upper) {
		return ""
	}
	if short, ok := strings.CutPrefix(upper, "CAP_"); ok && slices.Contains(capabilities, short) {
		return fmt.Sprintf("containerd ignores %q; write %s, without the prefix", name, short)
	}
	return fmt.Sprintf("Linux has no capability %q; it has no effect", name)
}
