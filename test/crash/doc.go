// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crash attacks the store of the built binary: it kills the process while clients write, and
// simulates power loss of its disk. After a restart every acknowledged write must be present,
// the cluster must be ready in bounded time, and no pod may be restarted or duplicated.
//
// The disk is ext4 on a loop device. EXT4_IOC_SHUTDOWN discards unsynced data, as in
// xfstests, and mounting replays the journal. Some pages of the store's files are written before
// that in a random order, so that the last writes are torn.
//
// It also damages the files of stopped stores (damage_test.go): each start must either serve all
// acknowledged objects or fail with one line that says what is damaged and what to do.
//
// A seed draws the moments and the writes; "make crash ARGS='-seed 7 -rounds 20'" gives it. Without
// KINDRED_CRASH=1 only quick tests run, without KINDRED_BIN none.
package crash
