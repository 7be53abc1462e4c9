// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// The backoff after failed restarts of containerd: the first pause, and the limit to which it doubles.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// Supervise restarts containerd whenever it exits, as a service manager does, until ctx ends. It leaves
// containerd running then. Containers keep running without containerd, but cannot be started, stopped or
// listed.
func (r *Runtime) Supervise(ctx context.Context) {
	logger := klog.FromContext(ctx)
	pause := firstPause
	for ctx.Err() == nil {
		err := r.awaitExit(ctx)
		if err == nil {
			logger.Info("containerd has exited, restarting it", "log", r.options.LogFile)
			err = r.ensureRunning(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = firstPause
			continue
		}
		logger.Error(err, "Cannot restart containerd, will retry", "after", pause)
		select {
		case <-ctx.Done():
		case <-r.options.Clock.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// awaitExit returns nil when no containerd of the data directory runs any more.
func (r *Runtime) awaitExit(ctx context.Context) error {
	running, err := findProcesses(isContainerd(r.options.config()))
	if err != nil {
		return err
	}
	defer closeAll(running)
	for _, p := range running {
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the process exits or ctx ends.
func (p *process) wait(ctx context.Context) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(wake)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// A write of eight bytes that are not all zero makes an eventfd readable.
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken // do not close the descriptor during the write
		}
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for process %d: %w", p.pid, err)
		default:
			return ctx.Err()
		}
	}
}
