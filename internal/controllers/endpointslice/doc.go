// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointslice keeps the EndpointSlices of each Service.
//
// The reconciler of k8s.io/endpointslice decides the content of the slices. This package reads
// services, pods, nodes and slices for it from the shared cache, writes with the controller's
// identity, and runs it after a change of a Service, its slices, a pod that it selects, or the
// zones of nodes.
//
// The slices are read through a ledger (package owned), so that the reconciler always sees its
// own writes, and a stale cache cannot lead to duplicate slices.
package endpointslice
