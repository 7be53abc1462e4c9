// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netns runs the tests of a package in a new network namespace, so that their bridges
// and firewall rules do not affect the machine.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// inNamespaceEnv is set for the process in the new namespace.
const inNamespaceEnv = "KINDRED_TEST_IN_NETNS"

// Run runs the tests, and returns the exit code for TestMain. As root, it runs the test binary again in
// a new network namespace; other users cannot create one, and their tests must skip what needs it.
func Run(m *testing.M) int {
	if os.Getenv(inNamespaceEnv) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Outside returns a command that runs in the network of the machine, which it needs to download something.
func Outside(name string, args ...string) *exec.Cmd {
	if os.Getenv(inNamespaceEnv) == "" {
		return exec.Command(name, args...)
	}
	outer := fmt.Sprintf("--net=/proc/%d/ns/net", os.Getppid()) // the process of Run
	return exec.Command("nsenter", append([]string{outer, name}, args...)...)
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Required skips a test that needs the namespace if Run could not create one, but not in CI.
func Required(t *testing.T) {
	t.Helper()
	if os.Getenv(inNamespaceEnv) != "" {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI must run as root: the test needs a network namespace")
	}
	t.Skip("needs a network namespace: run it as root")
}
