// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The calls that change a pod. Refresh reads afterwards what they changed, or the whole pod if one of them failed.

// RunPodSandbox creates and starts a sandbox, and returns its ID.
func (r *Runtime) RunPodSandbox(ctx context.Context, uid types.UID, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	id, err := r.cri.RunPodSandbox(ctx, config, handler)
	r.touchSandbox(uid, id, err)
	return id, err
}

// CreateContainer creates a container in a sandbox, and returns its ID.
func (r *Runtime) CreateContainer(ctx context.Context, uid types.UID, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := r.cri.CreateContainer(ctx, sandbox, config, sandboxConfig)
	r.touchContainer(uid, id, sandbox, err)
	return id, err
}

// StartContainer starts a container of a sandbox.
func (r *Runtime) StartContainer(ctx context.Context, uid types.UID, sandbox, id string) error {
	err := r.cri.StartContainer(ctx, id)
	r.touchContainer(uid, id, sandbox, err)
	return err
}

// StopContainer sends a container its stop signal, and SIGKILL after a grace period, in whole seconds. It returns once the
// container has ended. Watch does not report what the call does to the container.
func (r *Runtime) StopContainer(ctx context.Context, uid types.UID, id string, grace time.Duration) error {
	defer r.beginStop(id)()
	err := r.cri.StopContainer(ctx, id, int64((grace+time.Second-1)/time.Second))
	r.touchContainer(uid, id, "", err)
	return err
}

// StopPodSandbox ends a sandbox and releases its network. Watch does not report what the call does to the sandbox.
func (r *Runtime) StopPodSandbox(ctx context.Context, uid types.UID, id string) error {
	defer r.beginStop(id)()
	err := r.cri.StopPodSandbox(ctx, id)
	r.touchSandbox(uid, id, err)
	return err
}

// RemoveContainer removes a container that has ended.
func (r *Runtime) RemoveContainer(ctx context.Context, uid types.UID, id string) error {
	err := r.cri.RemoveContainer(ctx, id)
	r.touch(uid, func(t *touched) {
		t.whole = t.whole || err != nil
		t.removed = append(t.removed, id)
	})
	return err
}

// RemovePodSandbox removes a sandbox that has ended, with its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, uid types.UID, id string) error {
	err := r.cri.RemovePodSandbox(ctx, id)
	r.touch(uid, func(t *touched) { t.whole = true })
	return err
}

// touched is what calls have changed of a pod since it was last read.
type touched struct {
	whole      bool
	sandboxes  []string
	containers map[string]string // the sandbox of each, or "" if the container was there before
	removed    []string          // containers
}

func (r *Runtime) touchSandbox(uid types.UID, id string, err error) {
	r.touch(uid, func(t *touched) {
		t.whole = t.whole || err != nil
		t.sandboxes = append(t.sandboxes, id)
	})
}

func (r *Runtime) touchContainer(uid types.UID, id, sandbox string, err error) {
	r.touch(uid, func(t *touched) {
		t.whole = t.whole || err != nil
		if t.containers[id] == "" {
			t.containers[id] = sandbox
		}
	})
}

func (r *Runtime) touch(uid types.UID, change func(*touched)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.touched[uid] == nil {
		r.touched[uid] = &touched{containers: map[string]string{}}
	}
	change(r.touched[uid])
}

// takeTouched returns what was touched of a pod, or nil, and forgets it.
func (r *Runtime) takeTouched(uid types.UID) *touched {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer delete(r.touched, uid)
	return r.touched[uid]
}

// beginStop notes that a container or sandbox is being stopped, until the result is called.
func (r *Runtime) beginStop(id string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops[id]++ // a container can be stopped twice at a time, with different grace periods
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stops[id]--; r.stops[id] == 0 {
			delete(r.stops, id)
		}
	}
}

// isStopping reports whether a call stops the container or sandbox now.
func (r *Runtime) isStopping(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stops[id] > 0
}
