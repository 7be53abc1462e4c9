// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointslicemirroring copies Endpoints that users write to EndpointSlices.
//
// Clients that route traffic read EndpointSlices only. The Endpoints of a Service with a selector are
// written by package endpoints, and its slices by package endpointslice. For a Service without a
// selector, this package keeps one slice for each set of ports and each IP family of its Endpoints,
// unless their label endpointslice.kubernetes.io/skip-mirror is "true", or they hold the record of a
// leader election. The Endpoints own the slices (KEP-752).
package endpointslicemirroring
