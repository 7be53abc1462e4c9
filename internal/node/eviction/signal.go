// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is a measure of what is left of a resource of the node.
type Signal string

// The signals of node pressure.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// The signals of the limits of single pods, in metrics.
const (
	EmptyDirLimit  Signal = "emptydirfs.limit"
	PodLimit       Signal = "ephemeralpodfs.limit"
	ContainerLimit Signal = "ephemeralcontainerfs.limit"
)

// The resources that signals stand for, as events name them, beside v1.ResourceMemory and v1.ResourceEphemeralStorage.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// signals has each signal of node pressure in the order in which thresholds are listed: memory is reclaimed first.
var signals = []struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
}{
	{MemoryAvailable, v1.NodeMemoryPressure, v1.ResourceMemory},
	{AllocatableMemoryAvailable, v1.NodeMemoryPressure, v1.ResourceMemory},
	{NodeFsAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	{NodeFsInodesFree, v1.NodeDiskPressure, inodes},
	{ImageFsAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	{ImageFsInodesFree, v1.NodeDiskPressure, inodes},
	{ContainerFsAvailable, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	{ContainerFsInodesFree, v1.NodeDiskPressure, inodes},
	{PIDAvailable, v1.NodePIDPressure, pids},
}

// condition returns the condition of a node on which the signal is below a threshold.
func (s Signal) condition() v1.NodeConditionType {
	for _, known := range signals {
		if known.signal == s {
			return known.condition
		}
	}
	return ""
}

// resource returns what is to be reclaimed, or "" if the signal is unknown.
func (s Signal) resource() v1.ResourceName {
	for _, known := range signals {
		if known.signal == s {
			return known.resource
		}
	}
	return ""
}

// Value is a quantity, or a share of a capacity.
type Value struct {
	// Quantity is nil if the value is a share.
	Quantity *resource.Quantity
	// Share is between 0 and 1.
	Share float32
}

// Of returns the value for a capacity.
func (v Value) Of(capacity resource.Quantity) resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(v.Share)), resource.BinarySI)
}

// Threshold is the least value of a signal.
type Threshold struct {
	Signal Signal
	Value  Value
	// Grace is the time for which the signal must be below the value before pods are evicted. A hard threshold has none.
	Grace time.Duration
	// MinReclaim is how far above the value the signal must rise once pods were evicted; nil for not at all.
	MinReclaim *Value
}

// IsHard reports whether pods are evicted at once, with no more time to end than needed.
func (t Threshold) IsHard() bool { return t.Grace == 0 }

// isMet reports whether the observation is below the threshold, or below what must be reclaimed.
func (t Threshold) isMet(seen Observation, reclaim bool) bool {
	least := t.Value.Of(seen.Capacity)
	if reclaim && t.MinReclaim != nil {
		least.Add(t.MinReclaim.Of(seen.Capacity))
	}
	return least.Cmp(seen.Available) > 0
}

// Observation is what a signal was at a time.
type Observation struct {
	Available, Capacity resource.Quantity
	// Time is zero if it is unknown.
	Time time.Time
}

// Observations have the signals that could be measured.
type Observations map[Signal]Observation
