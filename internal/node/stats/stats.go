// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"
)

// Usage is one sample of CPU and memory.
type Usage struct {
	// Time is when the sample was taken.
	Time time.Time
	// CPU is the CPU time consumed since the start, by all CPUs together.
	CPU time.Duration
	// Memory is the working set in bytes.
	Memory uint64
	// Swap is the swap in bytes; nil if it is not counted.
	Swap *uint64
}

// Container is what a running container uses.
type Container struct {
	Name string
	// Started is zero if it is unknown.
	Started time.Time
	Usage
}

// Pod is what a pod with running containers uses.
type Pod struct {
	Namespace, Name string
	// Usage includes what is used by no container, such as the sandbox. It is nil if only
	// containers can be measured.
	Usage      *Usage
	Containers []Container
}

// Summary is what a node and its pods use.
type Summary struct {
	// Node is nil if the node cannot be measured.
	Node *Usage
	Pods []Pod
}

// Source takes samples of a node.
type Source func(context.Context) (Summary, error)
