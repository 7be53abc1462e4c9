// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host makes machines on this host. A machine has network, mount, PID, UTS, IPC and cgroup namespaces of its own, an address on
// a bridge that all machines share, and a data directory. It runs one Kindred, as a node or as a server with a node, and that a private
// containerd. Machines share the kernel of the host, its programs and its users; they are no protection against a pod that breaks out.
//
// Everything that the package knows is in a directory:
//
//	lock                    held during each change
//	network.json            the range of addresses
//	bin/<version>/kindred   programs that machines run
//	machines/<name>/        machine.json, and the directories of the machine
//	endpoints/<name>.json   addresses that lead to the servers of a cluster
//
// No process is needed for machines to run. The first process of a machine (PID 1 there) outlives the one that started it, and starts
// Kindred again if that ends. If it is killed itself, the machine is dead, as one without power: nothing starts it again, unless the
// whole host was started again since.
package host
