// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// isHugePages reports whether a medium is HugePages or HugePages-<size>.
func isHugePages(medium v1.StorageMedium) bool {
	return medium == v1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
}

// pageSize returns the size of the pages of a volume. The pod must request pages of this size; if the medium names none, it must
// request pages of one size only.
func pageSize(pod *v1.Pod, medium v1.StorageMedium) (resource.Quantity, error) {
	requested := requestedPageSizes(pod)
	if text, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		size, err := resource.ParseQuantity(text)
		if err != nil {
			return resource.Quantity{}, fmt.Errorf("medium %s: %w", medium, err)
		}
		if !requested[size.Value()] {
			return resource.Quantity{}, noPagesRequested(medium)
		}
		return size, nil
	}
	switch len(requested) {
	case 0:
		return resource.Quantity{}, noPagesRequested(medium)
	case 1:
		for size := range requested {
			return *resource.NewQuantity(size, resource.BinarySI), nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
}

func noPagesRequested(medium v1.StorageMedium) error {
	return fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
}

// requestedPageSizes returns the sizes of the huge pages that the pod or its containers request.
func requestedPageSizes(pod *v1.Pod) map[int64]bool {
	sizes := map[int64]bool{}
	add := func(requests v1.ResourceList) {
		for name := range requests {
			if text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
				if size, err := resource.ParseQuantity(text); err == nil {
					sizes[size.Value()] = true
				}
			}
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Requests)
	}
	for i := range pod.Spec.InitContainers {
		add(pod.Spec.InitContainers[i].Resources.Requests)
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Resources.Requests)
	}
	return sizes
}

// mountHugePages mounts a file system of huge pages at dir, unless one is mounted.
func mountHugePages(dir string, size resource.Quantity) error {
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, "pagesize="+strconv.FormatInt(size.Value(), 10)); err != nil {
		return fmt.Errorf("mount huge pages of %s at %s: %w", size.String(), dir, err)
	}
	return nil
}
