// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup manages the pod-level cgroups and those of the QoS classes above them.
//
// The layout is the kubelet's. Guaranteed pods are directly below the parent:
//
//	<parent>/pod<uid>                guaranteed
//	<parent>/burstable/pod<uid>
//	<parent>/besteffort/pod<uid>
//
// A pod's cgroup has the limits of the pod, which its containers share. The CPU shares of the
// class levels give burstable pods precedence over best-effort pods. Both cgroup versions and both
// drivers are supported: with cgroupfs, the manager creates directories; with systemd, each cgroup
// is that of a slice, such as <parent>.slice/<parent>-burstable.slice/<parent>-burstable-pod<uid>.slice.
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

// hierarchy is a cgroup file system: the unified hierarchy of version 2, or all controllers of
// version 1.
type hierarchy interface {
	version() int
	// join returns the path of a child. split is its inverse: it returns the name of a child from that of its directory, and
	// false if it is no such child.
	join(parent, name string) string
	split(parent, entry string) (name string, ok bool)
	// create creates the cgroup and its missing parents, and sets the limits. A quota of NoQuota removes that of an existing
	// cgroup; limits that are 0 stay unchanged.
	create(path string, limits *runtimeapi.LinuxContainerResources) error
	// limitPIDs limits the processes and threads of a cgroup that exists.
	limitPIDs(path string, limit int64) error
	// limits reads the cgroup's limits: -1 for no limit, 0 if the cgroup does not exist.
	limits(path string) (cpu bandwidth, memory int64)
	// memoryUsage returns the memory that is charged to the cgroup, in bytes.
	memoryUsage(path string) (uint64, error)
	// sample returns what the processes of the cgroup and of its children use, and allLimits what they may use.
	sample(path string) (Sample, error)
	allLimits(path string) Limits
	// io returns the use of block devices, without their names.
	io(path string) []DeviceIO
	// child returns the cgroup of a container in that of its pod.
	child(path, id string) (string, error)
	// memoryDir and pids return the directory of the controller memory, and pids.
	memoryDir(path string) string
	pids(path string) string
	// remove removes the cgroup and its children.
	remove(path string) error
	// dirs returns the directories of the cgroup, which need not exist.
	dirs(path string) []string
}

// Manager creates and removes the cgroups of pods. It implements pod.Cgroups.
type Manager struct {
	// Unlimited reports whether the CPU limit of a pod is not enforced, because it has CPUs of its own. If it is nil, all
	// are enforced. It is set before the first pod.
	Unlimited func(uid types.UID) bool
	// Active returns the node's pods that have not ended; nil if there are none. It is set before the first pod.
	Active func() []*v1.Pod
	// PodPIDs limits the processes and threads of each pod; 0 or less is no limit. It is set before the first pod.
	PodPIDs int64
	// Quota enforces CPU limits. It is set before the first pod.
	Quota criconfig.Quota
	// Observe is called, if set, when an operation begins on the cgroup of a pod ("create", "update" or "destroy"), and what it
	// returns when the operation ends. It is set before the first pod.
	Observe func(operation string) (done func())

	// PageSizes are the sizes of huge pages, in bytes, whose use is limited. They are set before the first pod.
	PageSizes []int64

	parent    string
	tree      hierarchy
	memoryQoS criconfig.MemoryQoS

	mu        sync.Mutex
	shared    bool // the levels have what is requested
	requested classRequests
	counts    map[types.UID]counted // the pods that sum has counted
}

// New returns the manager of the cgroups below parent, an absolute cgroup path ("/kindred-0123"), of
// which each component is a slice if the driver is systemd. Without a parent, or if cgroups cannot be
// written, there are no pod-level cgroups, and the runtime chooses the parent of containers.
func New(parent string, driver Driver) (*Manager, error) {
	if parent == "" {
		return &Manager{}, nil
	}
	if driver == Systemd {
		return newSystemd(parent)
	}
	return newIn("/sys/fs/cgroup", parent), nil
}

func newIn(root, parent string) *Manager {
	m := &Manager{parent: parent}
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

// newSystemd fails if slices cannot be created: the runtime was configured for them.
func newSystemd(parent string) (*Manager, error) {
	tree := detectV2("/sys/fs/cgroup")
	if tree == nil {
		tree = detectV1("/sys/fs/cgroup")
	}
	if tree == nil {
		return nil, errors.New("the machine has no cgroups for CPU and memory in /sys/fs/cgroup")
	}
	tree, err := newSlices(tree)
	if err != nil {
		return nil, err
	}
	slice := "/"
	for name := range strings.SplitSeq(strings.Trim(parent, "/"), "/") {
		slice = tree.join(slice, name)
	}
	if err := tree.create(slice, nil); err != nil {
		return nil, fmt.Errorf("create the slice of pods by systemd: %w", err)
	}
	return &Manager{parent: slice, tree: tree}, nil
}

// IsV2 reports whether the machine has only the unified hierarchy.
func IsV2() bool { return detectV2("/sys/fs/cgroup") != nil }

// Ensure implements pod.Cgroups.
func (m *Manager) Ensure(p *v1.Pod) (string, error) {
	return m.set(p, func(_ string, limits *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
		return limits
	})
}

// Grow implements pod.Cgroups.
func (m *Manager) Grow(p *v1.Pod) (string, error) {
	return m.set(p, func(path string, limits *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
		cpu, memory := m.tree.limits(path)
		if cpu.exceeds(limits) {
			limits.CpuQuota = 0 // create leaves it unchanged
		}
		if memory < 0 || memory > limits.MemoryLimitInBytes {
			limits.MemoryLimitInBytes = 0
		}
		limits.Unified = nil // memory.high is a limit, too
		return limits
	})
}

// set creates the pod's cgroup and sets the limits that choose returns.
func (m *Manager) set(p *v1.Pod, choose func(string, *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources) (string, error) {
	if m.tree == nil {
		return "", nil
	}
	class := qos.GetPodQOS(p)
	path := m.path(class, p.UID)
	defer m.observe(m.operation(path))()
	limits := m.limitsOf(p, class)
	if m.Unlimited != nil && m.Unlimited(p.UID) {
		limits.CpuQuota = 0
	}
	if err := m.tree.create(path, choose(path, limits)); err != nil {
		return "", fmt.Errorf("failed to ensure that the pod: %s cgroups exist and are correctly applied: %w", p.UID, err)
	}
	if m.PodPIDs > 0 {
		if err := m.tree.limitPIDs(path, m.PodPIDs); err != nil {
			return "", fmt.Errorf("failed to ensure that the pod: %s cgroups exist and are correctly applied: %w", p.UID, err)
		}
	}
	return path, m.share(p.UID, p)
}

// Remove implements pod.Cgroups.
func (m *Manager) Remove(uid types.UID) error {
	if m.tree == nil {
		return nil
	}
	defer m.observe("destroy")()
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		errs = append(errs, m.tree.remove(m.path(class, uid)))
	}
	return errors.Join(append(errs, m.share(uid))...)
}

func (m *Manager) observe(operation string) (done func()) {
	if m.Observe == nil {
		return func() {}
	}
	return m.Observe(operation)
}

// operation returns the name of what Ensure does.
func (m *Manager) operation(path string) string {
	if _, err := os.Stat(m.tree.memoryDir(path)); err != nil {
		return "create"
	}
	return "update"
}

func (m *Manager) path(class v1.PodQOSClass, uid types.UID) string {
	return m.tree.join(m.level(class), "pod"+string(uid))
}

func (m *Manager) level(class v1.PodQOSClass) string {
	switch class {
	case v1.PodQOSBurstable:
		return m.tree.join(m.parent, burstable)
	case v1.PodQOSBestEffort:
		return m.tree.join(m.parent, bestEffort)
	}
	return m.parent
}

// limitsOf returns the limits of a pod's cgroup.
func (m *Manager) limitsOf(p *v1.Pod, class v1.PodQOSClass) *runtimeapi.LinuxContainerResources {
	limits := limitsOf(p, class, m.Quota)
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits.HugepageLimits, limits.Unified = criconfig.PodHugepageLimits(requests, m.PageSizes), m.memoryQoS.Pod(p)
	return limits
}

// limitsOf returns the limits of CPU and memory of a pod's cgroup. A resource is limited only if the pod or every one of its
// containers limits it.
func limitsOf(p *v1.Pod, class v1.PodQOSClass, quota criconfig.Quota) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	if class == v1.PodQOSBestEffort {
		return &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(0)}
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !criconfig.IsLimited(p, name) {
			delete(limits, name)
		}
	}
	resources := quota.Resources(requests, limits)
	if quota.Off && !limits.Cpu().IsZero() {
		resources.CpuQuota = criconfig.NoQuota // an earlier agent may have set one
	}
	return resources
}

// removeTree removes a cgroup and its children, leaves first. The kernel removes their files.
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

// parseLimit parses the content of a limit's file: 0 if the file could not be read, -1 if the content
// is not a number ("max").
func parseLimit(text string, err error) int64 {
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
	text, err := readFile(filepath.Join(dir, file))
	return strings.TrimSpace(text), err
}

func write(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set cgroup limit: %w", err)
	}
	return nil
}

// writeIfPresent writes a file that only some kernels and controllers have.
func writeIfPresent(dir, file, value string) error {
	if _, err := os.Stat(filepath.Join(dir, file)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return write(dir, file, value)
}
