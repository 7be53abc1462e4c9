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
// and passes on a request to stop. It records the ends, of which none count any more when the program has settled.
func supervise(program string, args []string, clock clock.Clock, record func(Ends)) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	pid, err := launch(program, args)
	if err != nil {
		return err
	}
	var ends Ends
	record(ends)
	var restart, settles <-chan time.Time
	stopping := false
	for {
		select {
		case <-restart:
			restart = nil
			if pid, err = launch(program, args); err != nil {
				return err
			}
			settles = clock.After(settled)
		case <-settles:
			settles, ends = nil, Ends{}
			record(ends)
		case s := <-signals:
			if s != syscall.SIGCHLD {
				stopping = true
				if pid == 0 {
					return nil
				}
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
			}
			how, ended := reap(pid)
			if !ended {
				continue
			}
			pid = 0
			if stopping {
				return nil
			}
			ends = Ends{Count: ends.Count + 1, Last: how}
			record(ends)
			restart, settles = clock.After(restartDelay), nil
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

// reap reaps all processes that have ended. It reports whether one of them has the PID, and how that ended.
func reap(pid int) (how string, ended bool) {
	for {
		var status syscall.WaitStatus
		child, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || child <= 0 {
			return how, ended
		}
		if child == pid {
			how, ended = describe(status), true
			fmt.Fprintf(os.Stderr, "kindred ended: %s\n", how)
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
