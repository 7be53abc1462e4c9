// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics of a node's agent under the names of upstream's kubelet: those of /metrics and
// /metrics/probes. Each agent has its own, so that clusters in one process do not count together. The metrics of the
// process itself (go_*, process_*) are the same for all.
//
// What happens is counted where it happens, by the methods of Metrics. What is the case, such as the number of running
// pods, is computed when it is asked for (state.go). A nil Metrics counts nothing.
package metrics
