// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// The tests with a real containerd create bridges and firewall rules, in a network namespace of their own: the
// test binary runs itself again in a new one.
const inNamespaceEnv = "KINDRED_TEST_IN_NETNS"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(inNamespaceEnv) != "" {
		if os.Getenv(inNamespaceEnv) != "" {
			loopbackUp()
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func loopbackUp() {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		panic(err)
	}
}

// needContainerd skips a test if containerd is missing, but not in CI.
func needContainerd(t *testing.T) {
	t.Helper()
	missing := Missing()
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI must have %v: %s", missing, HowToGet(missing))
	}
	t.Skipf("needs %v: %s", missing, HowToGet(missing))
}
