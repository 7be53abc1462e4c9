// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenarios drives the built binary as its users do: it starts "kindred up" in
// a process of its own, types kubectl commands, kills processes, and looks at what the
// machine then runs. Nothing here knows the inside of Kindred.
//
// Most scenarios share one of two clusters, each scenario in a namespace of its own:
// [withNode] has this machine as its node, whose pods are real containers, and
// [withoutNode] has one simulated node. Scenarios that stop, kill or remove a cluster
// start their own.
//
// The binary is bin/kindred of this repository, or the one that KINDRED_BIN names.
// Moves to upstream's control plane and back are for "make upstream": its programs take
// minutes to build, once.
//
// Scenarios with real containers need root, containerd, runc, the CNI plugins, iptables
// and busybox-static; without them they are skipped, and fail where CI is set.
package scenarios
