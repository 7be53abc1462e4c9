// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// isInit reports whether this process is the first one of a PID namespace.
func isInit() bool { return isIsolated() && os.Getpid() == 1 }

// actAsInit runs this program again and does the duty of process 1 meanwhile: it waits for processes whose parents have ended, such as
// the shims of containers, which would otherwise stay as zombies. It returns the exit status of the program. When it ends, the kernel
// kills what is left in the namespace.
func actAsInit() (int, error) {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount the processes of the namespace: %w", err)
	}
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range interrupts {
			_ = child.Signal(s)
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, os.NewSyscallError("wait", err)
		case pid == child.Pid && status.Signaled():
			return 0, fmt.Errorf("ended by signal: %v", status.Signal())
		case pid == child.Pid:
			return status.ExitStatus(), nil
		}
	}
}
