// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containerd runs the private containerd of a data directory, for nodes whose user configured no
// container runtime.
//
// Private means that it shares nothing with another containerd of the machine: its root, state, socket and
// configuration are its own, and machine-wide names (bridge, pod range, cgroups, firewall chains) are
// derived from the data directory ([Names]), so that two clusters do not conflict.
//
// The process is a daemon: it runs in a session and a cgroup of its own, outlives the program that started
// it and keeps pods running meanwhile. The next [Start] finds it by its command line, which has the path of
// the data directory's configuration file. A pid file, which could be stale, is not needed. [Reset] stops it
// together with everything that it runs.
//
// It needs no registry: package pause builds the program of the sandbox's pause image, which is imported
// through containerd's API, as [ImportImages] does with a user's archives.
package containerd
