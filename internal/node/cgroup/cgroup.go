// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup keeps the cgroups above pods' containers.
//
// Below one parent there is a level for each quality-of-service class but
// Guaranteed, whose pods stand beside the levels, and below those one cgroup a pod:
//
//	<parent>/pod<uid>                guaranteed
//	<parent>/burstable/pod<uid>
//	<parent>/besteffort/pod<uid>
//
// A pod's cgroup holds the pod's own limits, so that containers share what is left of
// them; the levels' CPU shares make besteffort yield. Both cgroup versions
// work; the driver is cgroupfs, that is, plain directories.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// The levels below the parent.
const (
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// hierarchy is one cgroup file system: the single one of version 2, or all the
// controllers of version 1.
type hierarchy interface {
	// create makes the cgroup, and what is missing above it, with the limits.
	create(path string, limits *runtimeapi.LinuxContainerResources) error
	// limits reads the cgroup's limits: -1 where there is none, 0 if there is no such cgroup.
	limits(path string) (quota, memory int64)
	// remove removes the cgroup and all below it.
	remove(path string) error
}

// Manager makes and removes pods' cgroups. It implements pod.Cgroups.
type Manager struct {
	parent string
	tree   hierarchy

	mu       sync.Mutex
	requests map[types.UID]int64 // CPU of burstable pods, in thousandths
}

// New returns the manager of the cgroups below parent, an absolute cgroup path
// ("/kindred-0123"). Without a parent, or where cgroups cannot be written, it keeps none, and pods'
// containers end up where the runtime puts them.
func New(parent string) *Manager {
	if parent == "" {
		return &Manager{}
	}
	return newIn("/sys/fs/cgroup", parent)
}

func newIn(root, parent string) *Manager {
	m := &Manager{parent: parent, requests: map[types.UID]int64{}}
	for _, tree := range []hierarchy{detectV2(root), detectV1(root)} {
		if tree == nil {
			continue
		}
		if err := tree.create(parent, nil); err == nil {
			m.tree = tree
			break
		}
	}
	return m
}

// Ensure implements pod.Cgroups.
func (m *Manager) Ensure(p *v1.Pod) (string, error) {
	return m.set(p, func(_ string, limits *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
		return limits
	})
}

// Grow implements pod.Cgroups.
func (m *Manager) Grow(p *v1.Pod) (string, error) {
	return m.set(p, func(path string, limits *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
		quota, memory := m.tree.limits(path)
		if quota < 0 || quota > limits.CpuQuota {
			limits.CpuQuota = 0 // which leaves it as it is
		}
		if memory < 0 || memory > limits.MemoryLimitInBytes {
			limits.MemoryLimitInBytes = 0
		}
		return limits
	})
}

// set makes the pod's cgroup with what is chosen of its limits.
func (m *Manager) set(p *v1.Pod, choose func(string, *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources) (string, error) {
	if m.tree == nil {
		return "", nil
	}
	class := qos.GetPodQOS(p)
	path := m.path(class, p.UID)
	if err := m.tree.create(path, choose(path, limitsOf(p, class))); err != nil {
		return "", fmt.Errorf("failed to ensure that the pod: %s cgroups exist and are correctly applied: %w", p.UID, err)
	}
	if class != v1.PodQOSBurstable {
		return path, nil
	}
	request := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	return path, m.share(p.UID, request.Cpu().MilliValue())
}

// Remove implements pod.Cgroups.
func (m *Manager) Remove(uid types.UID) error {
	if m.tree == nil {
		return nil
	}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		errs = append(errs, m.tree.remove(m.path(class, uid)))
	}
	errs = append(errs, m.share(uid, 0))
	return errors.Join(errs...)
}

func (m *Manager) path(class v1.PodQOSClass, uid types.UID) string {
	return filepath.Join(m.level(class), "pod"+string(uid))
}

func (m *Manager) level(class v1.PodQOSClass) string {
	switch class {
	case v1.PodQOSBurstable:
		return filepath.Join(m.parent, burstable)
	case v1.PodQOSBestEffort:
		return filepath.Join(m.parent, bestEffort)
	}
	return m.parent
}

// share gives the burstable level as many CPU shares as its pods request together.
func (m *Manager) share(uid types.UID, request int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests[uid] == request {
		return nil
	}
	delete(m.requests, uid)
	if request > 0 {
		m.requests[uid] = request
	}
	sum := int64(0)
	for _, r := range m.requests {
		sum += r
	}
	return m.tree.create(m.level(v1.PodQOSBurstable), &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(sum)})
}

// limitsOf are a pod's limits: only those that every container has count for a
// burstable pod, as the others may take what they find.
func limitsOf(p *v1.Pod, class v1.PodQOSClass) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	if class == v1.PodQOSBestEffort {
		return &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(0)}
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !declared(p, name) {
			delete(limits, name)
		}
	}
	return criconfig.LinuxResources(requests, limits)
}

func declared(p *v1.Pod, name v1.ResourceName) bool {
	if p.Spec.Resources != nil {
		if limit, ok := p.Spec.Resources.Limits[name]; ok && !limit.IsZero() {
			return true
		}
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if limit := list[i].Resources.Limits[name]; limit.IsZero() {
				return false
			}
		}
	}
	return true
}

// removeTree removes a directory of cgroups from the leaves up. Their files go with them.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list cgroup: %w", err)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

// number reads a limit; 0 if there is no such file, -1 if it is no number.
func number(text string, err error) int64 {
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func read(dir, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(data)), err
}

func write(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set cgroup limit: %w", err)
	}
	return nil
}
