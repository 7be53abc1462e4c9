// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Attack tries to make the verbs of ownership break the guarantees of docs/ownership.md: it
// creates random graphs of objects (cycles, finalizers, owners that are absent, of a kind that
// is not served, or in another namespace), runs every verb on them, kills the server and the
// client at random moments, sends requests as a user with fewer rights, and compares the result
// with the output of the verbs and with a small model of garbage collection.
//
// A round is one graph and a few steps. Both come from the seed, which is printed first. When a
// round fails, the graph and the steps are reduced as long as it still fails, and the smallest
// round is printed:
//
//	go run ./test/attack -seed 7 -rounds 100
//	go run ./test/attack -seed 7 -round 31 -rounds 1
package main
