// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Disk is what is stored.
type Disk struct{ Bytes, Inodes int64 }

func (d *Disk) add(other Disk) {
	d.Bytes += other.Bytes
	d.Inodes += other.Inodes
}

// Container is what a container of a pod uses. Fields that could not be measured are nil.
type Container struct {
	// Memory is the working set in bytes.
	Memory *int64
	// Layer is the writable layer.
	Layer *Disk
	Logs  *Disk
}

// Usage is what a pod uses. Fields that could not be measured are nil.
type Usage struct {
	// Memory is the working set in bytes.
	Memory    *int64
	Processes *int64
	// Containers are those that run, by name.
	Containers map[string]Container
	// Volumes are the volumes on local disk that have the pod's lifetime, by name.
	Volumes map[string]Disk
	// Other is what is stored for the pod besides: /etc/hosts, and logs of containers that do not run.
	Other Disk
}

// Usages are those of all pods that could be measured.
type Usages map[types.UID]Usage

// disk returns what the pod stores in some parts.
func (u Usage) disk(pod *v1.Pod, of parts) Disk {
	var sum Disk
	for _, c := range u.Containers {
		if of.layers && c.Layer != nil {
			sum.add(*c.Layer)
		}
		if of.logs && c.Logs != nil {
			sum.add(*c.Logs)
		}
	}
	if of.volumes {
		sum.add(u.volumes(pod))
	}
	return sum
}

func (u Usage) volumes(pod *v1.Pod) Disk {
	var sum Disk
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; IsLocal(v) {
			sum.add(u.Volumes[v.Name])
		}
	}
	return sum
}

// total returns all that the pod stores, for its limit.
func (u Usage) total(pod *v1.Pod) Disk {
	sum := u.disk(pod, parts{layers: true, logs: true, volumes: true})
	sum.add(u.Other)
	return sum
}

// IsLocal reports whether a volume takes local disk space that counts for its pod.
func IsLocal(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil || v.GitRepo != nil
}

// allContainers returns the containers of a pod that may have requests and limits.
func allContainers(pod *v1.Pod) []v1.Container {
	return slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
}

func binary(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
