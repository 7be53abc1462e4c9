// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics serves metrics.k8s.io: what pods and nodes use now, which kubectl top shows and the
// HorizontalPodAutoscaler scales by. Upstream leaves it to an add-on, metrics-server.
//
// A Collector reads /metrics/resource of every Ready node, every 15 seconds, and keeps the last two
// samples of each container and node (samples.go). Simulated nodes are in this process and are asked
// directly. CPU is the difference of two counters divided by the
// time between them; memory is the last value. Nothing is stored: after a restart, metrics are there
// again after two samples. Each API server has a collector of its own.
//
// PodMetrics and NodeMetrics are the endpoints. They list the pods and nodes of the informers, so that
// label selectors work, and leave out those without samples.
package metrics
