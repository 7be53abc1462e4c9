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

// What a cluster of upstream's has on the machine outside of its directory. kube-proxy's
// rules are the machine's too, so there is one such cluster at a time, and the names are
// fixed.
const (
	bridgeName = "kupstream0"
	cgroupName = "kindred-upstream"
	// containerLinks is where kubelets put a link to every container's log, always.
	containerLinks = "/var/log/containers"
)

// freeRange is the first range for pods that overlaps nothing that is taken.
func freeRange(taken []netip.Prefix) (netip.Prefix, error) {
	for i := byte(200); i < 250; i++ {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 24)
		if !slices.ContainsFunc(taken, candidate.Overlaps) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errors.New("no range for pods is free: all of 10.200.0.0/24 to 10.249.0.0/24 overlap addresses of this machine")
}

// takenRanges are those of the machine's interfaces.
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

// addBridge makes the bridge of the pods, with the range's first address: the node's own,
// which its pods reach and other machines do not.
func addBridge(pods netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	// Of its own: otherwise it changes as pods come and go. The bits say that it is local.
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

// sysctls are settings of the machine that kubelet (protectKernelDefaults) and kube-proxy
// change. Those that [forward] changes are not restored: other programs that run pods here need
// them too.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"net/ipv4/conf/all/route_localnet",
}

// bridgedPackets makes packets between two pods pass the firewall. Without it, what a pod
// answers to one that came through a Service does not find its way back.
const bridgedPackets = "net/bridge/bridge-nf-call-iptables"

func sysctlFile(name string) string { return filepath.Join("/proc/sys", name) }

// readSysctls are the settings as they are. Not every kernel has all.
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

// restoreSysctls writes those settings that are no longer what they were.
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

// forward makes the machine route between pods, and Services work between them.
func forward(ctx context.Context) error {
	if _, err := os.Stat(sysctlFile(bridgedPackets)); errors.Is(err, fs.ErrNotExist) {
		// Its failure shows below.
		_ = exec.CommandContext(ctx, "modprobe", "br_netfilter").Run()
	}
	return errors.Join(writeSysctl("net/ipv4/ip_forward", "1"), writeSysctl(bridgedPackets, "1"))
}

// endShims kills what serves containers for the containerd at a socket.
func endShims(socket string) error {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var failed []error
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if err != nil || !isShim(command, socket) {
			continue // ended meanwhile, or none of ours
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = kill(pid)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// isShim is whether a process's command line is that of a shim of the containerd at a socket.
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

// unmountBelow unmounts what is mounted below dir, what was mounted last first. An error
// says that something still is: then nobody may remove the directory, which could reach
// files that are not ours.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	var failed []error
	for _, mount := range slices.Backward(mounts) {
		// Who unmounts a parent that is shared unmounts its children's copies too.
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

// fixedDirs are those that kubelet makes wherever its root is, the innermost first.
var fixedDirs = []string{containerLinks, "/var/lib/kubelet/device-plugins", "/var/lib/kubelet"}

// missing are those of the directories that are not there.
func missing(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Lstat(dir)
		return err == nil
	})
}

// removeFixedDirs removes those of the fixed directories that were not there before.
func removeFixedDirs(before []string) error {
	var failed []error
	for _, dir := range before {
		if len(missing([]string{dir})) > 0 {
			continue
		}
		entries, err := os.ReadDir(dir)
		failed = append(failed, err)
		for _, entry := range entries {
			// Not what is in directories that nobody knows of.
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

// restrictOOMScores is whether this process may not lower the score by which the kernel
// chooses whom to end when memory runs out, so that containerd must not try either.
func restrictOOMScores() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	may, err := hasCapability(status, unix.CAP_SYS_RESOURCE)
	return !may, err
}

// hasCapability reports whether a process has a capability, by its status file.
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
