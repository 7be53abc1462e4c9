// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage measures how much of the node's file systems directories of pods take: volumes, logs, /etc/hosts.
//
// A directory with a project quota of its own (package projectquota) is measured by asking the kernel. A tmpfs is
// measured as a whole. All others are walked, by one goroutine, which is idle for most of the time: its input and output
// have the idle priority, it pauses while it walks, and a directory that takes long to walk is walked less often. So
// results are cached, with their age. [Meter.Of] never waits.
//
// A container may take files of its own out of a project (FS_IOC_FSSETXATTR). Therefore directories with a quota are
// walked as well from time to time.
package usage
