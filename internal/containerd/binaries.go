// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// binaries are the programs that a private containerd needs, each with its Debian package.
var binaries = []struct{ name, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"iptables-restore", "iptables"},
}

// cniPlugins are the network plugins of the pod network.
var cniPlugins = []string{"bridge", "host-local", "loopback"}

// cniDirs are the directories where distributions install network plugins.
var cniDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// systemDirs are searched after PATH, because the PATH of an unprivileged user, which sudo may keep, often lacks
// the sbin directories.
var systemDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// capabilities are those that root needs for the pod network and for the mounts of containers. Root in a container often
// lacks them.
var capabilities = []struct {
	name   string
	number int
}{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
}

// Missing returns what [Start] needs and this machine lacks: programs by name, network plugins as "CNI plugin
// NAME", and "root" if the process does not run as root, or the capabilities that root lacks. [HowToGet] describes
// how to get it.
func Missing() []string {
	missing := missingRights()
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

// missingRights returns "root", or the capabilities that root lacks.
func missingRights() []string {
	if os.Geteuid() != 0 {
		return []string{"root"}
	}
	effective, err := effectiveCapabilities()
	if err != nil {
		return nil // what needs them fails, and says so
	}
	return lacking(effective)
}

// lacking returns the names of the capabilities that are not in the set.
func lacking(effective uint32) []string {
	var missing []string
	for _, c := range capabilities {
		if effective&(1<<c.number) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing
}

const (
	cniPrefix        = "CNI plugin "
	capabilityPrefix = "CAP_"
)

// HowToGet returns one line on how to get what [Missing] returned.
func HowToGet(missing []string) string {
	var packages []string
	seen := map[string]bool{}
	want := func(pkg string) {
		if !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, pkg)
		}
	}
	rights := ""
	for _, m := range missing {
		switch {
		case m == "root":
			rights = "run as root"
		case strings.HasPrefix(m, capabilityPrefix):
			rights = "run with all capabilities of root (in a container: --privileged)"
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
	if rights != "" {
		steps = append(steps, rights)
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

// missingError returns the error of Start if something is missing.
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

// findCNI returns the first directory that has all plugins. If none does, it returns the plugins that the best
// candidate lacks.
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
