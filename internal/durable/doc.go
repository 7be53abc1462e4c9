// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package durable replaces files so that a crash at any moment, power loss included, leaves
// the old content or the new one, never a part of either.
//
// [WriteFile] and [Write] write a temporary file in the same directory, sync it, rename it to
// its final name, and sync the directory, which makes the rename permanent (rename(2),
// fsync(2)). What a reader finds:
//
//	the process or the machine stops    after a crash of the process    after power loss
//	before the rename                   old                             old
//	before the directory is synced      new                             old or new
//	after the function has returned     new                             new
//
// "Old" is no file if there was none. A concurrent reader sees old before the rename and new
// after it. A function that returns an error has left old or new, and no temporary file.
//
// A crash before the rename can leave the temporary file, whose name is the file's with
// ".new" appended. The next write of the same file removes it. Because that name is fixed,
// each file has one writer at a time: its caller holds a lock, or owns the directory.
//
// [WriteCache] leaves out the syncs. It is for files whose content can be made again and
// whose readers notice when it is damaged.
package durable
