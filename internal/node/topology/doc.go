// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology describes the machine of a node: its CPUs, NUMA nodes and their memory, and decides on which
// NUMA nodes the resources of a container are to be (the topology manager, KEP-693). It is pure: [Read] takes a
// file system, [Policy.Merge] takes hints.
package topology
