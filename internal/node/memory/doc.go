// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory chooses the NUMA nodes of a container's memory and huge pages (the Static policy of the memory
// manager, KEP-1769). It is pure: its state is computed from what containers hold, which package assign knows.
//
// Nodes that hold memory of a container together are a group. As long as one container holds memory of a group, no
// other combination of its nodes is used: the kernel could otherwise give the memory of one container to another.
package memory
