// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workers keeps one pod.Worker for each pod of the node, and decides which resources each
// pod is allocated.
//
// [Set] is all that the agent sees. Its methods take the lock and call the table, which holds the
// state and knows no lock: code of the table always runs under the lock of its Set, and code
// outside this package cannot reach the state without it. Admission, events and the files of
// allocations are used under the lock, so that two pods never get the same room; workers run
// outside of it.
package workers
