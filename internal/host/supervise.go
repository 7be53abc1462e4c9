// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// restartDelay is the time between the end of Kindred in a machine and its next start, as systemd's unit has it.
const restartDelay = time.Second

// supervise runs a program as the first process of a PID namespace does: it starts it again when it ends, reaps processes without a parent,
// and passes on a request to stop.
func supervise(program string, args []string, clock clock.Clock) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	pid, err := launch(program, args)
	if err != nil {
		return err
	}
	var restart <-chan time.Time
	stopping := false
	for {
		select {
		case <-restart:
			restart = nil
			if pid, err = launch(program, args); err != nil {
				return err
			}
		case s := <-signals:
			if s != syscall.SIGCHLD {
				stopping = true
				if pid == 0 {
					return nil
				}
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
			}
			if !reap(pid) {
				continue
			}
			pid = 0
			if stopping {
				return nil
			}
			restart = clock.After(restartDelay)
		}
	}
}

// launch starts the program without waiting for it: reap does.
func launch(program string, args []string) (int, error) {
	process, err := os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	pid := process.Pid // Release forgets it
	return pid, process.Release()
}

// reap reaps all processes that have ended. It reports whether one of them has the PID.
func reap(pid int) (ended bool) {
	for {
		var status syscall.WaitStatus
		child, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || child <= 0 {
			return ended
		}
		if child == pid {
			ended = true
			fmt.Fprintf(os.Stderr, "kindred ended: exit status %d, signal %d\n", status.ExitStatus(), status.Signal())
		}
	}
}
