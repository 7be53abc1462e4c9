// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the built kindred binary and prints a table with the target and the
// result of each figure. It exits 0 if everything could be measured, whatever the results, because
// they depend on the machine and its load as much as on Kindred. docs/performance.md explains the
// figures.
//
//	go run ./test/bench                        # all
//	go run ./test/bench -list                  # their names
//	go run ./test/bench -run create -times 3   # some of them, three times
//	go run ./test/bench -run collect -cpuprofile collect.pprof
//
// Each figure has its own clusters, in new directories and separate processes. The bench is a client
// over HTTPS on the same machine. It observes the cluster by watches and does not poll. The figures
// of a real node need root, containerd and a static busybox.
package main
