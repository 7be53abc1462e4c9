// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// process is a running process that was found by its command line. The pidfd refers to that process even
// if its PID is reused.
type process struct {
	pid   int
	pidfd int
}

// findProcesses returns the processes whose command line matches. The caller must close them.
func findProcesses(match func(args []string) bool) ([]*process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []*process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !match(commandLine(pid)) {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has exited
		}
		if !match(commandLine(pid)) {
			unix.Close(pidfd) // the PID was reused
			continue
		}
		found = append(found, &process{pid: pid, pidfd: pidfd})
	}
	return found, nil
}

func closeAll(processes []*process) {
	for _, p := range processes {
		unix.Close(p.pidfd)
	}
}

// commandLine returns a process's arguments; none for a zombie, a kernel thread or a process that has exited.
func commandLine(pid int) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
}

// isContainerd returns a function that reports whether a command line is that of the containerd with
// this configuration file.
func isContainerd(config string) func([]string) bool {
	return func(args []string) bool { return isProgramWith(args, "containerd", "--config", config) }
}

// isShim returns a function that reports whether a command line is that of a shim of the containerd
// with this socket.
func isShim(socket string) func([]string) bool {
	return func(args []string) bool {
		return isProgramWith(args, "containerd-shim-runc-v2", "-address", socket)
	}
}

func isProgramWith(args []string, program, flag, value string) bool {
	if len(args) == 0 || filepath.Base(args[0]) != program {
		return false
	}
	for i := 1; i+1 < len(args); i++ {
		if args[i] == flag && args[i+1] == value {
			return true
		}
	}
	return false
}

// hasExited reports whether the process has exited: its pidfd is readable then (pidfd_open(2)).
func (p *process) hasExited() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// terminate sends SIGTERM to the processes, and SIGKILL to those that have not exited after grace.
func terminate(ctx context.Context, c clock.Clock, processes []*process, grace time.Duration) error {
	signalAll(processes, unix.SIGTERM)
	if err := waitExited(ctx, c, processes, grace); err == nil || ctx.Err() != nil {
		return err
	}
	signalAll(processes, unix.SIGKILL)
	return waitExited(ctx, c, processes, grace)
}

func signalAll(processes []*process, signal unix.Signal) {
	for _, p := range processes {
		// ESRCH means that the process has exited already.
		_ = unix.PidfdSendSignal(p.pidfd, signal, nil, 0)
	}
}

func waitExited(ctx context.Context, c clock.Clock, processes []*process, limit time.Duration) error {
	return poll(ctx, c, limit, func() error {
		for _, p := range processes {
			if !p.hasExited() {
				return fmt.Errorf("process %d (%s) does not exit", p.pid, strings.Join(commandLine(p.pid), " "))
			}
		}
		return nil
	})
}

// final is an error after which poll does not try again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// poll calls check until it succeeds, its error is final or limit has passed, and returns the last error. Its
// pauses are short at first, because the usual wait is a few milliseconds.
func poll(ctx context.Context, c clock.Clock, limit time.Duration, check func() error) error {
	const shortest, longest = 2 * time.Millisecond, 100 * time.Millisecond
	deadline := c.Now().Add(limit)
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := check()
		var f final
		if err == nil || errors.As(err, &f) || !c.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting: %w", context.Cause(ctx), err)
		case <-c.After(pause):
		}
	}
}

// spawn starts a daemon: a program in a session of its own, which signals of the caller's terminal do not
// reach, with its output in a file. The channel is closed when the program exits, if the caller still runs.
func spawn(binary, logFile string, args ...string) (<-chan struct{}, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = environment(os.Environ(), filepath.Dir(binary))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log has the reason
	}()
	return ended, nil
}

// environment returns the caller's environment for containerd: without the variables of the caller's service
// manager (sd_notify(3), sd_listen_fds(3)), and with a PATH that has the shim, runc and iptables.
func environment(inherited []string, binDir string) []string {
	var env []string
	path := ""
	for _, kv := range inherited {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_"):
		case name == "PATH":
			path = value
		default:
			env = append(env, kv)
		}
	}
	dirs := append([]string{binDir}, filepath.SplitList(path)...)
	dirs = append(dirs, systemDirs...)
	return append(env, "PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
}

// limitLog renames a log that is larger than limit, so that at most about twice the limit is kept.
func limitLog(file string, limit int64) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() <= limit {
		return nil
	}
	return os.Rename(file, file+".1")
}

// lastLines returns the end of a log, for error messages.
func lastLines(file string, n int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
