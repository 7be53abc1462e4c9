// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ProgramDir is the directory in which a machine has Kindred, and programPath its path there.
const (
	ProgramDir  = "/run/kindred-machine"
	programPath = ProgramDir + "/kindred"
)

// mounting makes mounts, and does nothing more after an error.
type mounting struct {
	err error
}

func (m *mounting) mount(source, target, kind string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
}

func (m *mounting) bind(source, target string) { m.mount(source, target, "bind", unix.MS_BIND, "") }

// dir creates a directory on a file system of the machine.
func (m *mounting) dir(path string) {
	if m.err == nil {
		m.err = os.MkdirAll(path, 0o755)
	}
}

// file creates an empty file there, to mount another one on it.
func (m *mounting) file(path string) {
	if m.err == nil {
		m.err = os.WriteFile(path, nil, 0o755)
	}
}

// open returns a path of a file that stays valid when another file system is mounted above it.
func (m *mounting) open(path string) string {
	if m.err != nil {
		return ""
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		m.err = &os.PathError{Op: "open", Path: path, Err: err}
		return ""
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// mountAll gives the machine its file systems. It has the host's, except for what belongs to a machine alone: its configuration, its
// state and data, its devices in memory, its processes, links and cgroups. dir and program are paths on the host, and may be below what is
// replaced.
func mountAll(dir, program string) error {
	var m mounting
	// Nothing that is mounted from here on is seen by the host.
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	own, kindred := m.open(dir), m.open(program)
	m.mount("overlay", "/etc", "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%[1]s/etc,workdir=%[1]s/work", own))
	m.mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	m.dir(ProgramDir)
	m.dir("/run/lock")
	m.file(programPath)
	m.bind(kindred, programPath)
	m.bind(own+"/lib", "/var/lib")
	m.bind(own+"/varlog", "/var/log")
	m.bind(own+"/tmp", "/tmp")
	m.mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	m.mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "")
	m.cgroups()
	m.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "")
	// Volumes of pods are propagated to their containers, as systemd has it.
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
	return m.err
}

// cgroups mounts the cgroups of the machine: those of version 2, or each hierarchy of version 1 as the host has them.
func (m *mounting) cgroups() {
	if m.err != nil {
		return
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		m.err = err
		return
	}
	hierarchies := parseCgroups(string(text))
	if len(hierarchies) == 1 && hierarchies[0].unified() {
		m.mount("cgroup2", cgroupRoot, "cgroup2", 0, "")
		if m.err == nil {
			m.err = delegate(cgroupRoot)
		}
		return
	}
	m.mount("tmpfs", cgroupRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755")
	for _, c := range hierarchies {
		target := c.mountPoint()
		m.dir(target)
		if c.unified() {
			m.mount("cgroup2", target, "cgroup2", 0, "")
			continue
		}
		m.mount("cgroup", target, "cgroup", 0, c.controllers)
		for name := range strings.SplitSeq(c.controllers, ",") {
			if link := cgroupRoot + "/" + name; link != target && m.err == nil && !strings.Contains(name, "=") {
				m.err = os.Symlink(target, link)
			}
		}
	}
}
