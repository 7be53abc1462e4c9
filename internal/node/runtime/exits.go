// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// After the kernel reports an exit, settle polls the runtime until it has noticed the exit too. The first
// pause is settleFirst, each further one is twice as long, and settleLimit limits their sum.
const (
	settleFirst = 2 * time.Millisecond
	settleLimit = 5 * time.Second
)

// reconnect is the pause before a failed event stream is opened again.
const reconnect = time.Second

// errNoEvents is the result of a stream that the runtime ends without an error and without an event.
var errNoEvents = errors.New("the event stream ended without events")

// Watch calls changed for each pod that may have changed, until ctx ends. It uses the runtime's event
// stream. A runtime without one (containerd before 1.7) returns Unimplemented, and CRI-O ends each
// stream at once unless its enable_pod_events is set: Watch then waits for the exit of each
// container's first process on a pidfd. Both are best effort, so callers must list periodically.
func (r *Runtime) Watch(ctx context.Context, changed func(types.UID)) {
	empty := 0
	for ctx.Err() == nil {
		err := r.watchEvents(ctx, changed)
		if empty++; !errors.Is(err, errNoEvents) {
			empty = 0
		}
		// A single empty stream may be that of a runtime that stops.
		if status.Code(err) == codes.Unimplemented || empty == 2 {
			r.watchProcesses(ctx, changed)
			return
		}
		select {
		case <-ctx.Done():
		case <-r.clock.After(reconnect):
		}
	}
}

func (r *Runtime) watchEvents(ctx context.Context, changed func(types.UID)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	failed := make(chan error, 1)
	go func() { failed <- r.cri.GetContainerEvents(quiet(ctx), events, nil) }()
	for received := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if errors.Is(err, io.EOF) && received+len(events) == 0 {
				return errNoEvents
			}
			return err
		case event := <-events:
			received++
			if uid := event.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" && !r.isStopping(event.GetContainerId()) {
				changed(types.UID(uid))
			}
		}
	}
}

func (r *Runtime) watchProcesses(ctx context.Context, changed func(types.UID)) {
	settled := func(p process) {
		if r.isStopping(p.id) {
			return
		}
		r.settle(ctx, p)
		if !r.hasSeenEnd(p) {
			changed(p.pod)
		}
	}
	if err := r.exits.start(settled); err != nil {
		// Without pidfds, only the periodic relist finds exits.
		klog.FromContext(ctx).Error(err, "Cannot watch processes, exits are found by relisting only")
		<-ctx.Done()
		return
	}
	// Pods that were read before now have no process IDs: read them again.
	r.mu.Lock()
	uids := make([]types.UID, 0, len(r.seen))
	for uid := range r.seen {
		uids = append(uids, uid)
	}
	clear(r.seen)
	r.mu.Unlock()
	for _, uid := range uids {
		changed(uid)
	}
	<-ctx.Done()
	r.exits.stop()
}

// settle waits until the runtime reports that a process has exited. The kernel reports it a few
// milliseconds before the shim notifies the runtime.
func (r *Runtime) settle(ctx context.Context, p process) {
	deadline := r.clock.Now().Add(settleLimit)
	for pause := settleFirst; r.clock.Now().Before(deadline); pause *= 2 {
		if !r.isAlive(ctx, p) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(pause):
		}
	}
}

// hasSeenEnd reports whether the last reading of its pod saw that p has ended, or no longer saw it.
func (r *Runtime) hasSeenEnd(p process) bool {
	last := r.Last(p.pod)
	if last == nil {
		return false
	}
	for _, s := range last.Sandboxes {
		if s.ID == p.id {
			return !s.Ready
		}
	}
	for _, c := range last.Containers {
		if c.ID == p.id {
			return c.State == Exited
		}
	}
	return true
}

// isAlive reports whether the runtime lists p as running. It returns false if the runtime fails.
func (r *Runtime) isAlive(ctx context.Context, p process) bool {
	ctx = quiet(ctx)
	if p.sandbox {
		response, err := r.cri.PodSandboxStatus(ctx, p.id, false)
		return err == nil && response.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	response, err := r.cri.ContainerStatus(ctx, p.id, false)
	return err == nil && response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// quiet keeps the CRI client from logging errors that are expected.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// processID returns the first process of a container or sandbox, or 0. It is in the verbose part of
// the status, in the format of both containerd and CRI-O.
func processID(info map[string]string) int {
	var detail struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &detail); err != nil {
		return 0
	}
	return detail.PID
}

// exits waits for processes to exit, with one epoll over their pidfds.
type exits struct {
	mu     sync.Mutex
	epoll  int // 0 unless started
	wake   int // an eventfd in the epoll; a write stops wait
	exited func(process)
	fds    map[int32]process
	ids    map[string]bool
}

// process is the first process of a container or sandbox.
type process struct {
	pod     types.UID
	id      string // of the container or sandbox
	sandbox bool
	pid     int // 0 if unknown
}

// wantsPIDs reports whether start was called: only then does watch need the process IDs, which the
// runtime returns in verbose responses.
func (e *exits) wantsPIDs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoll != 0
}

func (e *exits) start(exited func(process)) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epoll)
		return fmt.Errorf("create eventfd: %w", err)
	}
	if err := add(epoll, wake); err != nil {
		_ = unix.Close(epoll)
		_ = unix.Close(wake)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoll, e.wake, e.exited = epoll, wake, exited
	e.fds, e.ids = map[int32]process{}, map[string]bool{}
	go e.wait(epoll, wake)
	return nil
}

func (e *exits) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoll == 0 {
		return
	}
	_, _ = unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	for fd := range e.fds {
		_ = unix.Close(int(fd))
	}
	e.fds, e.ids = nil, nil
	e.epoll = 0
}

// watch starts to wait for the exit of a process.
func (e *exits) watch(p process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoll == 0 || p.pid == 0 || e.ids[p.id] {
		return
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		go e.exited(p) // it has exited already
		return
	}
	if err := add(e.epoll, fd); err != nil {
		_ = unix.Close(fd)
		return
	}
	e.fds[int32(fd)] = p
	e.ids[p.id] = true
}

func add(epoll, fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// wait reports exited processes until it is stopped.
func (e *exits) wait(epoll, wake int) {
	defer unix.Close(epoll)
	defer unix.Close(wake)
	events := make([]unix.EpollEvent, 32)
	for {
		n, err := unix.EpollWait(epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, event := range events[:max(n, 0)] {
			if event.Fd == int32(wake) {
				return
			}
			e.report(event.Fd)
		}
	}
}

func (e *exits) report(fd int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.fds[fd]
	if !ok {
		return
	}
	delete(e.fds, fd)
	delete(e.ids, p.id)
	_ = unix.Close(int(fd)) // this also removes it from the epoll
	go e.exited(p)
}
