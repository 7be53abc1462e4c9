// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sampler measures a node, its pods and their containers, and reports it in the three forms of upstream's
// kubelet: /stats/summary, /metrics/resource and /metrics/cadvisor.
//
// CPU, memory, processes and network are read for each request: from cgroups, and from a process in the pod's network
// namespace. A rate needs two samples. Every ten seconds, the sampler keeps the CPU times of all cgroups, to which a
// request compares. What takes long is measured in the background, once a minute (volumeStatsAggPeriod): the disk usage
// of volumes, logs and containers, and that of images.
//
// If the runtime chooses the cgroups of pods, only the CPU and memory of containers are known, from CRI.
package sampler
