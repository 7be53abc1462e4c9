// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hugepageLimits returns a container's limits of huge pages, for each of the node's page sizes: 0 for those that neither the
// container nor its pod requests. The container's limit takes precedence over the pod's.
func hugepageLimits(pod *v1.Pod, c *v1.Container, pageSizes []int64) []*runtimeapi.HugepageLimit {
	var limits []*runtimeapi.HugepageLimit
	for _, size := range slices.Sorted(slices.Values(pageSizes)) {
		quantity := limitOf(pod, c, hugepageResource(size))
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: pageSizeName(size), Limit: uint64(quantity.Value())})
	}
	return limits
}

// PodHugepageLimits returns the limits of a pod's huge pages, for each of the node's page sizes: what the pod requests, which it
// cannot exceed.
func PodHugepageLimits(requests v1.ResourceList, pageSizes []int64) []*runtimeapi.HugepageLimit {
	var limits []*runtimeapi.HugepageLimit
	for _, size := range slices.Sorted(slices.Values(pageSizes)) {
		quantity := requests[hugepageResource(size)]
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: pageSizeName(size), Limit: uint64(quantity.Value())})
	}
	return limits
}

// hugepageResource returns the resource of pages of this size: hugepages-2Mi.
func hugepageResource(size int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// pageSizeName returns the kernel's name of a page size in cgroups: 2MB.
func pageSizeName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	unit := 0
	for size >= 1024 && size%1024 == 0 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return strconv.FormatInt(size, 10) + units[unit]
}
