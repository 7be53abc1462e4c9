// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assign gives containers CPUs, memory and devices of their own: it is the CPU, memory, topology and device
// managers of the node. What is best is decided by the pure packages cpus, memory and topology, and by deviceplugin;
// this package knows which container has what.
//
// A pod is assigned everything at once, when it is admitted, and keeps it until all its containers have ended
// ([Manager.Release]). What it has is one record on disk, written before the pod's worker starts. There is no other
// state: what is free is computed from the records. So a crash at any moment leaves a pod with its record or a pod
// that was never started, nothing is assigned twice, and a policy can change between two runs of the agent: see
// [Manager.Run].
//
// Init containers that end leave what they have to the containers that start later; sidecars keep it.
package assign
