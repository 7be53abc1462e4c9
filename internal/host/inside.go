// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/links"
)

// readyWord is what the first process writes when it is set up.
var readyWord = []byte("ready")

// Enter is what the first process of a machine does first: it waits until it is in the machine's cgroup, and makes that the root of
// its cgroups. Only the thread that calls the kernel gets another cgroup namespace, so that it executes the program once more.
func Enter(dir string) error {
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	// The kernel would rather kill this machine than others if a Pod has started it: the score of its container is inherited. Without
	// CAP_SYS_RESOURCE it stays.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0o644)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// Only what is told to survives execve.
	if _, err := unix.FcntlInt(reportFD, unix.F_SETFD, 0); err != nil {
		return err
	}
	return syscall.Exec(program, []string{program, "machine", RunCommand, dir}, os.Environ())
}

// reportFD is the pipe to the process that started the machine: the first file after the standard ones.
const reportFD = 3

// Run sets up a machine from the inside, and runs Kindred in it until it is told to stop.
func Run(dir string) error {
	report := os.NewFile(reportFD, "report")
	m, running, err := setUp(dir)
	if err != nil {
		_, _ = report.WriteString(err.Error()) // the log has it as well
		return err
	}
	if _, err := report.Write(readyWord); err != nil {
		return err
	}
	if err := report.Close(); err != nil {
		return err
	}
	return supervise(programPath, m.Args, clock.RealClock{}, func(e Ends) {
		if err := writeEnds(running, e); err != nil {
			fmt.Fprintln(os.Stderr, err) // the machine goes on without the record
		}
	})
}

// setUp sets up a machine from the inside. running is the file that is locked while it runs.
func setUp(dir string) (m Machine, running *os.File, err error) {
	found, err := readJSON(filepath.Join(dir, "machine.json"), &m)
	if err != nil || !found {
		return m, nil, errors.Join(err, fmt.Errorf("%s has no machine", dir))
	}
	if running, err = lockRunning(dir); err != nil {
		return m, nil, err
	}
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return m, nil, fmt.Errorf("host name: %w", err)
	}
	if err := mountAll(dir, m.Program); err != nil {
		return m, nil, err
	}
	return m, running, configureLinks(m)
}

// lockRunning locks the file that tells the host that the machine runs. The lock ends with this process: it is a record lock, which has
// the PID of its holder. The file stays open for it.
func lockRunning(dir string) (*os.File, error) {
	file, err := os.OpenFile(runningFile(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(fmt.Errorf("the machine runs already: %w", err), file.Close())
	}
	return file, nil
}

// configureLinks gives the machine its address and the route to the host.
func configureLinks(m Machine) error {
	for _, name := range []string{"lo", linkInside} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if name == linkInside {
			if err := netlink.AddrReplace(link, links.Address(m.Address)); err != nil {
				return fmt.Errorf("address %s: %w", m.Address, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	if err := netlink.RouteReplace(&netlink.Route{Gw: m.Gateway.AsSlice()}); err != nil {
		return fmt.Errorf("route by way of %s: %w", m.Gateway, err)
	}
	return nil
}
