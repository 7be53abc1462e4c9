// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointslice lists, in EndpointSlices, the pods behind each Service.
//
// What a Service's slices should be is decided by the published reconciler of
// k8s.io/endpointslice. This package reads for it (services, pods, nodes and
// slices, from the shared cache), writes for it (under the controller's
// identity), and says when: after a change of a Service, of its slices, of a
// pod that matters to it, or of the zones of nodes.
//
// The slices are read through a ledger (package owned), so that the reconciler
// always sees what it wrote before; a second set of slices cannot arise from a
// cache that lags.
package endpointslice
