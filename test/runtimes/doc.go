// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command runtimes runs the scenarios of real nodes (test/scenarios) on several container runtimes, one after the
// other, and prints a table of the results. docs/runtimes.md describes what it found.
//
// containerd and its OCI runtimes are found through PATH, as by a user's Kindred. CRI-O is started by this program, and
// Kindred is told its endpoint. Each program that Debian does not have is built from its published module: the modules
// in the directories below this one pin the versions.
package main
