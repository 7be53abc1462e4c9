// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binaries are the programs a private containerd needs, and the Debian package
// each comes with.
var binaries = []struct{ name, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"iptables-restore", "iptables"},
}

// cniPlugins are the network plugins the pod network is made of.
var cniPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// cniDirs are where distributions put network plugins.
var cniDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// systemDirs are searched after PATH: an unprivileged user's PATH, which sudo may
// keep, often lacks the sbin directories.
var systemDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Missing lists what this machine lacks to run a private containerd: programs
// by name, network plugins as "CNI plugin NAME", and "root" when the process is not
// run by root. It is empty when [Start] can work. [HowToGet] says what to do.
func Missing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, b := range binaries {
		if _, err := lookPath(b.name); err != nil {
			missing = append(missing, b.name)
		}
	}
	if dir, absent := findCNI(); dir == "" {
		for _, name := range absent {
			missing = append(missing, cniPrefix+name)
		}
	}
	return missing
}

const cniPrefix = "CNI plugin "

// HowToGet is a line that says how to get what [Missing] found.
func HowToGet(missing []string) string {
	var packages []string
	seen := map[string]bool{}
	want := func(pkg string) {
		if !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, pkg)
		}
	}
	asRoot := false
	for _, m := range missing {
		switch {
		case m == "root":
			asRoot = true
		case strings.HasPrefix(m, cniPrefix):
			want("containernetworking-plugins")
		default:
			want(packageOf(m))
		}
	}
	var steps []string
	if len(packages) > 0 {
		steps = append(steps, "apt-get install "+strings.Join(packages, " "))
	}
	if asRoot {
		steps = append(steps, "run as root")
	}
	return strings.Join(steps, ", then ")
}

func packageOf(binary string) string {
	for _, b := range binaries {
		if b.name == binary {
			return b.pkg
		}
	}
	return binary
}

// missingError is what Start refuses with. Nothing was done before.
func missingError(missing []string) error {
	return fmt.Errorf("no private containerd: %s missing; %s",
		strings.Join(missing, ", "), HowToGet(missing))
}

func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range systemDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found on PATH", name)
}

// findCNI is the first directory that has all plugins. When there's none, it
// names the plugins which the best candidate lacks.
func findCNI() (dir string, absent []string) {
	absent = cniPlugins
	for _, candidate := range cniDirs {
		lacks := absentPlugins(candidate)
		if len(lacks) == 0 {
			return candidate, nil
		}
		if len(lacks) < len(absent) {
			absent = lacks
		}
	}
	return "", absent
}

func absentPlugins(dir string) []string {
	var absent []string
	for _, name := range cniPlugins {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			absent = append(absent, name)
		}
	}
	return absent
}
