// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// startLimit limits the time in which a machine sets itself up, which does not include Kindred's start.
	startLimit = 20 * time.Second
	// endLimit limits the time in which the kernel ends all processes of a machine.
	endLimit = 20 * time.Second
	// logLimit is the size from which a log is replaced when the machine starts.
	logLimit = 16 << 20
)

// namespaces are those that a machine has for itself. Its first process enters a cgroup namespace when it is in its cgroup.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// Commands of the program that make it the first process of a machine, in this order. Their argument is the directory of the machine.
const (
	EnterCommand = "enter"
	RunCommand   = "run"
)

// runningFile is locked by the first process of a machine.
func runningFile(dir string) string { return filepath.Join(dir, "running") }

// phase returns whether a machine runs, and the PID of its first process.
func (h *Host) phase(m Machine) (Phase, int, error) {
	pid, err := holder(runningFile(h.dir(m.Name)))
	if err != nil {
		return "", 0, err
	}
	if pid != 0 {
		return Running, pid, nil
	}
	boot, err := bootID()
	if err != nil {
		return "", 0, err
	}
	if m.Boot != boot {
		return Off, 0, nil
	}
	return Dead, 0, nil
}

// holder returns the process that has locked a file; 0 if there is none. The kernel translates its PID from the namespace of the process.
func holder(path string) (int, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("lock of %s: %w", path, err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// start starts the first process of a machine, and waits until it has set itself up.
func (h *Host) start(ctx context.Context, n network, m Machine) (Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	boot, err := bootID()
	if err != nil {
		return m, err
	}
	// What is left of a start that was interrupted may have children, and takes no processes then (cgroups(7), "no internal processes").
	if err := removeCgroup(ctx, h.cgroup(m.Name)); err != nil {
		return m, fmt.Errorf("machine %s: %w", m.Name, err)
	}
	first, err := h.spawn(m)
	if err != nil {
		return m, fmt.Errorf("machine %s: start its first process: %w", m.Name, err)
	}
	if err := errors.Join(h.connect(n, m, first.pid), enterCgroup(h.cgroup(m.Name), first.pid, m.Memory)); err != nil {
		return m, errors.Join(fmt.Errorf("machine %s: %w", m.Name, err), first.abandon())
	}
	if err := first.goOn(ctx); err != nil {
		return m, errors.Join(fmt.Errorf("machine %s: %w", m.Name, err), first.abandon())
	}
	m.Boot = boot // from now on it is Dead if it does not run
	if err := h.write(m); err != nil {
		return m, err
	}
	m.Phase, m.PID = Running, first.pid
	return m, nil
}

// firstProcess is the first process of a machine that sets itself up.
type firstProcess struct {
	pid int
	// begin is closed to let it begin. said is what it says when it is done: nothing, or an error.
	begin, said *os.File
}

// spawn starts the first process, which waits until it is told to go on.
func (h *Host) spawn(m Machine) (*firstProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := openLog(h.Log(m.Name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	waits, begin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer waits.Close()
	said, says, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, begin.Close())
	}
	defer says.Close()
	cmd := exec.Command(program, "machine", EnterCommand, h.dir(m.Name))
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = waits, log, log, []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, begin.Close(), said.Close())
	}
	// The process outlives this one. If it ends before, it is reaped.
	go func() { _ = cmd.Wait() }()
	return &firstProcess{cmd.Process.Pid, begin, said}, nil
}

// openLog opens the log of a machine. A long one is kept as the previous one.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
}

// goOn lets the process set itself up, and waits until it has.
func (p *firstProcess) goOn(ctx context.Context) error {
	defer p.said.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.said.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.begin.Close(); err != nil {
		return err
	}
	said, err := io.ReadAll(p.said)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("its first process is not set up: %w", ctx.Err())
	case err != nil:
		return err
	case bytes.Equal(said, readyWord):
		return nil
	case len(said) == 0:
		return errors.New("its first process ended before it was set up; its log has the reason")
	}
	return fmt.Errorf("set up its first process: %s", said)
}

// abandon kills a process that could not be set up.
func (p *firstProcess) abandon() error {
	_, _ = p.begin.Close(), p.said.Close() // they may be closed already
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// end kills the first process of a machine, with which the kernel kills all others in its PID namespace, and waits until it is gone.
func (h *Host) end(ctx context.Context, m Machine) error {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, endLimit, true, func(context.Context) (bool, error) {
		pid, err := holder(runningFile(h.dir(m.Name)))
		if err != nil || pid == 0 {
			return err == nil, err
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, err
		}
		return false, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("its processes do not end within %v of SIGKILL", endLimit)
	}
	return err
}
