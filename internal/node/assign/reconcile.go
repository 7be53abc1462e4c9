// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// Run keeps running containers on their CPUs until ctx ends: those without CPUs of their own leave the CPUs that
// others get, at once, and every cpuManagerReconcilePeriod in case an update failed. If the policy was static and is
// none now, it gives all CPUs to all containers, once: the CPUs that records name are shared then. If the policy was
// none, running containers share what new ones do not get, until they are created again.
func (m *Manager) Run(ctx context.Context) {
	if m.cpus == nil && !m.wasRestricted() {
		return
	}
	applied := map[string]string{} // CPUs by container ID
	for ctx.Err() == nil {
		complete := m.reconcile(ctx, applied)
		if m.cpus == nil && complete {
			m.unmark(ctx)
			return
		}
		select {
		case <-ctx.Done():
		case <-m.changed:
		case <-m.options.Clock.After(m.options.Config.CPUManagerReconcilePeriod.Duration):
		}
	}
}

// check has the CPUs of containers updated soon.
func (m *Manager) check() {
	select {
	case m.changed <- struct{}{}:
	default: // they will be
	}
}

func (m *Manager) wasRestricted() bool {
	_, err := os.Stat(m.marker())
	return err == nil
}

func (m *Manager) unmark(ctx context.Context) {
	if err := os.Remove(m.marker()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Cannot remove the mark of restricted containers; their CPUs are set again at the next start")
	}
}

// update is a container whose CPUs are to change.
type update struct {
	id, cpus string
	last     bool // the container gets CPUs of its own, which others must leave first
}

// reconcile updates the containers that do not have their CPUs, and reports whether all have.
func (m *Manager) reconcile(ctx context.Context, applied map[string]string) (complete bool) {
	pods, err := m.options.Runtime.List(ctx)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot compare the CPUs of containers, will retry")
		}
		return false
	}
	complete = true
	updates, running := m.updates(pods, applied)
	for id := range applied {
		if !running[id] {
			delete(applied, id)
		}
	}
	for _, last := range []bool{false, true} {
		for _, u := range updates {
			if u.last != last {
				continue
			}
			resources := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: u.cpus}}
			err := m.options.Runtime.Service().UpdateContainerResources(ctx, u.id, resources)
			if err == nil || runtime.IsNotFound(err) {
				applied[u.id] = u.cpus
				continue
			}
			complete = false
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Cannot set the CPUs of a container, will retry", "container", u.id, "cpus", u.cpus)
			}
		}
	}
	return complete
}

// updates returns the running containers whose CPUs are not known to be right, and the IDs of all running ones.
func (m *Manager) updates(pods map[types.UID]*runtime.Pod, applied map[string]string) (updates []update, running map[string]bool) {
	running = map[string]bool{}
	for uid, p := range pods {
		for _, c := range p.Containers {
			if c.State != runtime.Running {
				continue
			}
			running[c.ID] = true
			u := update{id: c.ID}
			if m.cpus == nil {
				u.cpus = m.options.Machine.All().String()
			} else {
				u.cpus = m.cpusOf(uid, c.Name).String()
				has, _ := m.store.get(uid).of(c.Name)
				u.last = has.CPUs != ""
			}
			if u.cpus != "" && applied[c.ID] != u.cpus {
				updates = append(updates, u)
			}
		}
	}
	return updates, running
}
