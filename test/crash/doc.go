// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crash attacks the store of the built binary: it ends the process by SIGKILL while
// clients write, and cuts the power of its disk. After the next start every acknowledged write
// must be there, the cluster ready in bounded time, and no pod disturbed or doubled.
//
// The disk is ext4 on a loop device. EXT4_IOC_SHUTDOWN drops what was not synced, as xfstests
// does it, and mounting replays the journal. Some pages of the store's files are written before
// that in a random order, so that the last writes are torn.
//
// It also damages the files of stopped stores (damage_test.go): each start must either serve all
// that was acknowledged, or end in one line that says what is damaged and what to do.
//
// A seed draws the moments and the writes; "make crash ARGS='-seed 7 -rounds 20'" gives it. Without
// KINDRED_CRASH=1 only what is quick is run, without KINDRED_BIN nothing.
package crash
