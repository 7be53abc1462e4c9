// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// This file asks what the machine can do, instead of assuming it.

// mayLowerOOMScore tells whether the process has CAP_SYS_RESOURCE, without which the
// kernel refuses an oom_score_adj below the process' own (proc_pid_oom_score_adj(5));
// containers in a virtual machine or in another container often lack it.
func mayLowerOOMScore() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading the process' capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
}

// chooseSnapshotter is overlayfs where a mount below dir works, else native, which
// copies: overlayfs does not work on every filesystem (not on itself before Linux
// 5.11 in user namespaces, not on NFS or exFAT as upper directory).
func chooseSnapshotter(dir string) (string, error) {
	probe, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(probe)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probe, name), 0o700); err != nil {
			return "", err
		}
	}
	merged := filepath.Join(probe, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return "native", nil
	}
	return "overlayfs", unix.Unmount(merged, unix.MNT_DETACH)
}
