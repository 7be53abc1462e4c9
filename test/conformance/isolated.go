// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolatedEnv is set for the process in the namespaces.
const isolatedEnv = "CONFORMANCE_ISOLATED"

// isolatedAddress is the address of the machine that the namespaces are. RFC 5737 reserves it for documentation.
var isolatedAddress = net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}

func isIsolated() bool { return os.Getenv(isolatedEnv) != "" }

// isolate runs this program again in new network, mount, process and cgroup namespaces. The suite of node agents asks an agent at
// fixed ports and below fixed directories, which other clusters on the machine may have, and kills the processes of the container
// runtime by their name.
func isolate(ctx context.Context) (err error) {
	leave, err := enterCgroups()
	if err != nil {
		return fmt.Errorf("enter cgroups of its own: %w", err)
	}
	defer func() { err = errors.Join(err, leave()) }()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolatedEnv+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// The mounts of a namespace that is unshared are private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP, Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("in namespaces of its own: %w", err)
	}
	return nil
}

// furnish gives the namespaces what a machine has: a network with a default route, cgroups, a directory for the agent's, which
// must not exist, and mounts that pods can propagate.
func furnish() error {
	if err := furnishNetwork(); err != nil {
		return fmt.Errorf("set up the network namespace: %w", err)
	}
	return errors.Join(
		mountCgroups(),
		os.NewSyscallError("mount", unix.Mount("lib", filepath.Dir(kubeletDir), "tmpfs", 0, "mode=0755")),
		furnishResolver(),
		os.NewSyscallError("mount", unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")),
	)
}

func furnishNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	// The other end leads nowhere. Not all kernels have dummy interfaces.
	machine := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "nowhere"}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(machine)); err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrAdd(machine, &netlink.Addr{IPNet: &isolatedAddress}), netlink.LinkSetUp(machine)); err != nil {
		return err
	}
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0") // a constant
	return netlink.RouteAdd(&netlink.Route{LinkIndex: machine.Index, Dst: everywhere, Gw: net.IPv4(192, 0, 2, 254)})
}
