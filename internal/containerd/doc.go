// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containerd runs the private containerd of one data directory, for
// nodes whose user named no container runtime of his own.
//
// Private means that nothing is shared with a containerd the machine may already
// run: root, state, socket and configuration are its own, and whatever the kernel
// names machine-wide (bridge, pod range, cgroups, firewall chains) is named
// after the data directory ([Names]), so that two clusters never meet.
//
// The process is no child in spirit: it runs in a session and a cgroup of its own,
// outlives the program that started it and keeps pods running meanwhile. The next
// [Start] finds it again by its command line, which names the data directory's
// configuration file; there is no pid file that could be stale. [Reset] ends it
// together with everything it ran.
//
// Nothing here needs a registry: the sandbox's pause image is made by package
// pause and imported through containerd's own API, as [ImportImages] does with
// archives a user brings.
package containerd
