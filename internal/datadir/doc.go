// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir manages a cluster's data directory: where each part has its files, which process
// may use the directory, and whether it is a data directory at all.
//
// A data directory belongs to one cluster, and a cluster has one. Everything that could conflict
// with another cluster on the same machine (sockets, bridge, cgroup parent, labels) is named after
// [Layout.ID], which derives from the path.
//
// Three files in the root describe the directory itself:
//
//	kindred.version  the format of the directory. A directory that has no such file and is
//	                 not empty is not Kindred's, and is never changed.
//	kindred.lock     locked with flock(2) by the process that runs the cluster. Its content is the
//	                 PID, for the error message of a second process.
//	kindred.json     what runs there, or ran there last, for "kindred status" and other tools.
//
// The kernel releases the lock when the process ends, so a lock is never stale.
//
// machines.json lists the directories in which pods of the cluster have made machines of this host, for
// "kindred reset".
package datadir
