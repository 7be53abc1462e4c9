// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of what a cluster of upstream's has on the machine outside of its directory. They are
// fixed, because there is one such cluster at a time.
const (
	bridgeName = "kupstream0"
	cgroupName = "kindred-upstream"
	// containerLinks is the fixed directory in which kubelets link every container's log.
	containerLinks = "/var/log/containers"
)

// freeRange returns the first range for pods that does not overlap a used one.
func freeRange(taken []netip.Prefix) (netip.Prefix, error) {
	for i := byte(200); i < 250; i++ {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 24)
		if !slices.ContainsFunc(taken, candidate.Overlaps) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errors.New("no range for pods is free: all of 10.200.0.0/24 to 10.249.0.0/24 overlap addresses of this machine")
}

// takenRanges returns the ranges of the machine's interfaces.
func takenRanges() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var taken []netip.Prefix
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil {
			return nil, err
		}
		taken = append(taken, prefix.Masked())
	}
	return taken, nil
}

// addBridge creates the bridge of the pods with the first address of the range. It is the node's
// address, which its pods can reach and other machines cannot.
func addBridge(pods netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	// A fixed address, because otherwise it changes with the pods. The bits mark it as locally
	// administered.
	attrs.HardwareAddr = append(net.HardwareAddr{0x02, 0x4b}, pods.Addr().AsSlice()...)
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is a bridge %[1]s already: another such cluster runs, or one was killed; if so, end its processes and run \"ip link delete %[1]s\"", bridgeName)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridgeName, err)
	}
	return nil
}

func configureBridge(pods netip.Prefix) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	address := &net.IPNet{IP: pods.Addr().Next().AsSlice(), Mask: net.CIDRMask(pods.Bits(), 32)}
	if err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("bridge %s: %w", bridgeName, err)
	}
	return netlink.LinkSetUp(bridge)
}

func removeBridge() error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	return netlink.LinkDel(bridge)
}

// sysctls are settings of the machine that kubelet (protectKernelDefaults) and kube-proxy change.
// Settings that [forward] changes are not restored, because other programs that run pods on this
// machine need them.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"net/ipv4/conf/all/route_localnet",
}

// bridgedPackets makes packets between two pods pass the firewall. Without it, the response to a
// request through a Service is not translated back.
const bridgedPackets = "net/bridge/bridge-nf-call-iptables"

func sysctlFile(name string) string { return filepath.Join("/proc/sys", name) }

// readSysctls returns the current settings. Not every kernel has all.
func readSysctls() (map[string]string, error) {
	values := map[string]string{}
	for _, name := range sysctls {
		value, err := os.ReadFile(sysctlFile(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		values[name] = strings.TrimSpace(string(value))
	}
	return values, nil
}

// restoreSysctls restores the settings that have changed.
func restoreSysctls(before map[string]string) error {
	now, err := readSysctls()
	failed := []error{err}
	for name, value := range before {
		if now[name] != value {
			failed = append(failed, writeSysctl(name, value))
		}
	}
	return errors.Join(failed...)
}

func writeSysctl(name, value string) error {
	return os.WriteFile(sysctlFile(name), []byte(value), 0o644)
}

// forward makes the machine route packets between pods, so that Services work between them.
func forward(ctx context.Context) error {
	if _, err := os.Stat(sysctlFile(bridgedPackets)); errors.Is(err, fs.ErrNotExist) {
		// A failure shows below.
		_ = exec.CommandContext(ctx, "modprobe", "br_netfilter").Run()
	}
	return errors.Join(writeSysctl("net/ipv4/ip_forward", "1"), writeSysctl(bridgedPackets, "1"))
}

// endShims kills the shims of the containerd at a socket.
func endShims(socket string) error {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var failed []error
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if err != nil || !isShim(command, socket) {
			continue // ended meanwhile, or not a shim of this containerd
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = kill(pid)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// isShim reports whether a command line is that of a shim of the containerd at a socket.
func isShim(command []byte, socket string) bool {
	args := strings.Split(string(command), "\x00")
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, socket)
}

func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}

// unmountBelow unmounts everything below dir, the last mount first. After an error something is
// still mounted: then the directory must not be removed, because that could delete other files.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	var failed []error
	for _, mount := range slices.Backward(mounts) {
		// Unmounting a shared parent also unmounts the copies of its children.
		err := unix.Unmount(mount.Mountpoint, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			failed = append(failed, fmt.Errorf("unmount %s: %w", mount.Mountpoint, err))
		}
	}
	if mounts, err = mountinfo.GetMounts(mountinfo.PrefixFilter(dir)); err != nil || len(mounts) == 0 {
		return errors.Join(append(failed, err)...)
	}
	return errors.Join(append(failed, fmt.Errorf("%d file systems are still mounted below %s", len(mounts), dir))...)
}

// fixedDirs are directories that kubelet creates wherever its root is, the innermost first.
var fixedDirs = []string{containerLinks, "/var/lib/kubelet/device-plugins", "/var/lib/kubelet"}

// missing returns the directories that do not exist.
func missing(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Lstat(dir)
		return err == nil
	})
}

// removeFixedDirs removes the fixed directories that did not exist before.
func removeFixedDirs(before []string) error {
	var failed []error
	for _, dir := range before {
		if len(missing([]string{dir})) > 0 {
			continue
		}
		entries, err := os.ReadDir(dir)
		failed = append(failed, err)
		for _, entry := range entries {
			// Remove fails for directories with unknown content.
			failed = append(failed, os.Remove(filepath.Join(dir, entry.Name())))
		}
		failed = append(failed, os.Remove(dir))
	}
	return errors.Join(failed...)
}

// removeContainerLinks removes the links to logs below dir.
func removeContainerLinks(dir string) error {
	links, err := filepath.Glob(filepath.Join(containerLinks, "*"))
	if err != nil {
		return err
	}
	var failed []error
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			failed = append(failed, os.Remove(link))
		}
	}
	return errors.Join(failed...)
}

// restrictOOMScores reports whether this process may not lower OOM scores
// (proc_pid_oom_score_adj(5)), so that containerd must not try either.
func restrictOOMScores() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	may, err := hasCapability(status, unix.CAP_SYS_RESOURCE)
	return !may, err
}

// hasCapability reports whether a process has a capability, given its status file.
func hasCapability(status []byte, capability int) (bool, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if mask, found := strings.CutPrefix(lines.Text(), "CapEff:"); found {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return bits&(1<<capability) != 0, err
		}
	}
	return false, errors.New("a process's status has no CapEff")
}
