// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/projectquota"
)

// emptyDir is scratch space with the lifetime of the pod, on disk, in memory or in huge pages.
type emptyDir struct {
	dir    string
	medium v1.StorageMedium
	size   int64 // of the tmpfs, in bytes; 0 for the kernel's default
	pod    *v1.Pod
	group  *int64
}

func (m *Manager) emptyDir(pod *v1.Pod, source *v1.EmptyDirVolumeSource, dir string) *emptyDir {
	v := &emptyDir{dir: dir, medium: source.Medium, pod: pod, group: fsGroup(pod)}
	if source.Medium == v1.StorageMediumMemory {
		v.size = memorySize(m.nodeMemory(), pod, source.SizeLimit)
	}
	return v
}

func (v *emptyDir) path() string   { return v.dir }
func (v *emptyDir) readOnly() bool { return false }

func (v *emptyDir) prepare(context.Context) (time.Time, error) {
	if v.medium != v1.StorageMediumDefault && v.medium != v1.StorageMediumMemory && !isHugePages(v.medium) {
		return time.Time{}, fmt.Errorf("unknown storage medium %q", v.medium)
	}
	if _, err := os.Lstat(v.dir); err != nil || v.medium != v1.StorageMediumDefault {
		if err := v.make(); err != nil {
			return time.Time{}, err
		}
	}
	// Only a new volume gets the group. Files that containers have written keep theirs.
	if v.group == nil || hasGroup(v.dir, *v.group) {
		return time.Time{}, nil
	}
	return time.Time{}, setGroup(v.dir, *v.group, false)
}

func (v *emptyDir) make() error {
	if v.medium == v1.StorageMediumDefault {
		return v.makeMeasured()
	}
	if mounted, err := mountinfo.Mounted(v.dir); err == nil && mounted {
		return nil
	}
	if err := makeDir(v.dir); err != nil {
		return err
	}
	if v.medium == v1.StorageMediumMemory {
		return mountTmpfs(v.dir, v.size)
	}
	size, err := pageSize(v.pod, v.medium)
	if err != nil {
		return err
	}
	return mountHugePages(v.dir, size)
}

// makeMeasured makes a directory on disk. If the file system has project quotas, the directory gets a project without a
// limit, so that its size is known without walking it. If that fails, it is walked.
func (v *emptyDir) makeMeasured() error {
	if err := makeDir(v.dir); err != nil {
		return err
	}
	if project, err := projectquota.Open(v.dir); err == nil && project != nil {
		_ = project.Claim(0)
		_ = project.Close()
	}
	return nil
}

// memorySize returns the smallest of the node's allocatable memory, the pod's memory limit and the
// volume's size limit (KEP-1967).
func memorySize(allocatable int64, pod *v1.Pod, limit *resource.Quantity) int64 {
	size := allocatable
	smaller := func(q *resource.Quantity) {
		if q != nil && q.Value() > 0 && (size == 0 || q.Value() < size) {
			size = q.Value()
		}
	}
	if limitsMemory(pod) {
		limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
		smaller(limits.Memory())
	}
	smaller(limit)
	return size
}

// limitsMemory reports whether the pod's memory is limited: by its own limit or by those of all its
// containers.
func limitsMemory(pod *v1.Pod) bool {
	if pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return true
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Resources.Limits.Memory().IsZero() {
			return false
		}
	}
	return true
}

// nodeMemory returns the node's allocatable memory in bytes.
func (m *Manager) nodeMemory() int64 {
	allocatable := m.options.Allocatable()
	return allocatable.Memory().Value()
}
