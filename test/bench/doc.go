// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the built kindred binary and prints a table: what was
// measured, its target, its result. It asserts nothing and always exits 0 when
// all could be measured, because a figure says as much of the machine, and of
// what else runs on it, as of Kindred. docs/performance.md explains the figures.
//
//	go run ./test/bench                        # all
//	go run ./test/bench -list                  # their names
//	go run ./test/bench -run create -times 3   # some, three times
//	go run ./test/bench -run collect -cpuprofile collect.pprof
//
// Each figure gets clusters of its own, on fresh directories, in processes of
// their own; the bench is their client over HTTPS and shares the processors with
// them. What happened is learnt from watches, never by asking again and again.
// The figures of a real node need root, containerd and a static busybox.
package main
