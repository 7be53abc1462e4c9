// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mayLowerOOMScore reports whether the process has CAP_SYS_RESOURCE. Without it, the kernel refuses an
// oom_score_adj below the process's own (proc_pid_oom_score_adj(5)). A process in a container often lacks it.
func mayLowerOOMScore() (bool, error) {
	effective, err := effectiveCapabilities()
	return effective&(1<<unix.CAP_SYS_RESOURCE) != 0, err
}

// effectiveCapabilities returns the effective capabilities of the process with numbers below 32, as a bit set.
func effectiveCapabilities() (uint32, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("reading the process' capabilities: %w", err)
	}
	return data[0].Effective, nil
}

// chooseSnapshotter returns overlayfs if an overlay mount below dir succeeds, else native, which copies files.
// overlayfs does not work on every file system: not on NFS or exFAT as upper directory, and not in user
// namespaces before Linux 5.11.
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

// createCgroup creates a cgroup for containerd if the machine has version 2 alone, mounted at root. containerd moves itself
// there, and creates the cgroup only in hierarchies of version 1.
func createCgroup(root, path string) error {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
		return fmt.Errorf("create the cgroup of containerd: %w", err)
	}
	return nil
}
