// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the HTTP side of Kindred, assembled from Kubernetes'
// published libraries as upstream's is: three servers in a chain that share
// one configuration. The aggregator answers first (APIServices, discovery,
// merged OpenAPI), then the built-in groups, then custom resources; what none
// of them knows is not found.
//
// A request walks filters, endpoint, a kind's strategy and the storage; the
// watch cache tells the watchers. The process's own clients take the same walk
// through package inprocess.
package apiserver
