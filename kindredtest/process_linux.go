// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindredtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process when this one ends: a test that exceeds its
// timeout runs no cleanup.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
