// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbage removes what nothing on the node needs any more.
//
// Images are removed when their file system is full, the least recently used ones first, and when they have not
// been used for imageMaximumGCAge (type Images). What is left of pods that neither the API nor the runtime has is
// removed by type Sweeper: claims, volumes, cgroups, logs, and the files of old runs of containers. A pod's worker
// removes all of that itself, and old runs as well; the sweeper removes what an agent left that was killed.
//
// What is removed is decided by functions without I/O. Each removal can be repeated, and the agent may be killed
// between any two. Both types have a Reclaim method, which removes all that can be spared, for a node whose disk is
// full.
package garbage
