// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpus chooses the CPUs that a container has for itself (the static policy of the CPU manager, KEP-3570). It
// is pure: it knows the machine and which CPUs are free, and package assign knows which containers have which.
package cpus
