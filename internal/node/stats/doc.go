// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stats is the form in which a node reports what its containers, its pods and the node itself
// use, and the kubelet's endpoint /metrics/resource, which serves it in the Prometheus text format.
//
// CPU is a counter: the time that all CPUs have spent since the container was started. A reader takes
// two samples and divides by the time between them. Memory is the working set: what the kernel cannot
// reclaim without writing or swapping (usage without inactive file pages), by which it also decides
// that a container is out of memory.
package stats
