// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir knows the layout of a cluster's data directory: where each
// part keeps its files, who may use the directory, and how to tell that it is
// ours.
//
// A data directory belongs to one cluster, and the cluster to it: everything
// that could meet another cluster on the same machine (sockets, bridge, cgroup
// parent, labels) is named after [Layout.ID], which derives from its path.
//
// Three files in the root describe the directory itself:
//
//	kindred.version  the format of the directory. What has no such file and is
//	                 not empty is somebody else's, and is never touched.
//	kindred.lock     flock(2)ed by the process that runs the cluster, with its
//	                 pid inside, so that a second one can say who is in the way.
//	kindred.json     what runs there, or ran there last, for `kindred status` and
//	                 other tools.
//
// The kernel drops the lock when the process ends, however it ends, so there is
// never a stale lock to clean up; the pid inside is for people.
package datadir
