// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podautoscaler is the HorizontalPodAutoscaler controller. Every 15 seconds it compares the
// metrics of each autoscaler with their targets, and sets the replicas of its target through the scale
// subresource, which any kind may have.
//
// A pass has four parts, of which the middle two are decisions without I/O:
//
//   - metrics.go asks the metrics APIs: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io;
//   - replicas.go computes from the samples and the pods how many replicas would meet one target. Pods
//     that are not ready and pods without samples are counted against the direction of the change;
//   - limit.go takes the largest of these numbers and limits it: stabilization windows, the rates of
//     spec.behavior, and the bounds. It needs a memory of recent recommendations and changes, which is
//     lost with the process, as upstream's is;
//   - act.go writes the scale and the status.
//
// An autoscaler that has no usable metric does nothing, and says why in its condition ScalingActive.
package podautoscaler
