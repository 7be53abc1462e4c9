// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import "slices"

// Layout says which file systems have the node's data. nodefs is that of the agent's root directory.
type Layout int

const (
	// OneFs has everything.
	OneFs Layout = iota
	// ImageFs has images and the writable layers of containers on a file system of their own.
	ImageFs
	// SplitFs has images on a file system of their own, and writable layers on nodefs (KEP-4191).
	SplitFs
)

// parts are what uses a file system.
type parts struct{ layers, logs, volumes bool }

// partsOf returns what pods store on the file system of a signal.
func (l Layout) partsOf(s Signal) parts {
	all := parts{layers: true, logs: true, volumes: true}
	switch l {
	case ImageFs:
		switch s {
		case NodeFsAvailable, NodeFsInodesFree:
			return parts{logs: true, volumes: true}
		}
		return parts{layers: true}
	case SplitFs:
		switch s {
		case ImageFsAvailable, ImageFsInodesFree:
			return parts{}
		}
	}
	return all
}

// reclaimable returns what the node can delete for a signal before it evicts pods: dead containers, and images that
// no container uses.
func (l Layout) reclaimable(s Signal) (containers, images bool) {
	switch s {
	case ImageFsAvailable, ImageFsInodesFree:
		return l != SplitFs, true
	case NodeFsAvailable, NodeFsInodesFree:
		return l != ImageFs, l == OneFs
	case ContainerFsAvailable, ContainerFsInodesFree:
		return true, l != SplitFs
	}
	return false, false
}

// adapt replaces the thresholds of containerfs by those of the file system that has the writable layers. Ones that the
// configuration has for containerfs are ignored, as upstream documents.
func (l Layout) adapt(thresholds []Threshold) []Threshold {
	from := map[Signal]Signal{NodeFsAvailable: ContainerFsAvailable, NodeFsInodesFree: ContainerFsInodesFree}
	if l == ImageFs {
		from = map[Signal]Signal{ImageFsAvailable: ContainerFsAvailable, ImageFsInodesFree: ContainerFsInodesFree}
	}
	adapted := slices.DeleteFunc(slices.Clone(thresholds), func(t Threshold) bool {
		return t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree
	})
	for _, t := range adapted {
		if signal, ok := from[t.Signal]; ok {
			t.Signal = signal
			adapted = append(adapted, t)
		}
	}
	return inOrder(adapted)
}
