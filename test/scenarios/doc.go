// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenarios tests the built binary as users run it: it starts "kindred up" in a separate
// process, runs kubectl commands, kills processes, and checks the processes of the machine. It uses no
// internal package of Kindred.
//
// Most scenarios share one of two clusters, each scenario in a namespace of its own. In [withNode]
// this machine is the node and runs real containers; [withoutNode] has one simulated node. Scenarios
// that stop, kill or remove a cluster start their own.
//
// The binary is bin/kindred of this repository, or the one that KINDRED_BIN names.
// Moves to upstream's control plane and back run only in "make upstream", because that builds
// upstream's programs first, which takes minutes.
//
// Scenarios with real containers need root, containerd, runc, the CNI plugins, iptables
// and busybox-static; with KINDRED_RUNTIME, which names the CRI endpoint of a runtime that has the
// images, real nodes use that one ("make runtimes"). Without them they are skipped, and fail where CI is set.
package scenarios
