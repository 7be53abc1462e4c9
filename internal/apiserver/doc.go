// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the API server. As upstream's, it is assembled from Kubernetes' published
// libraries: three servers in a chain that share one configuration. The aggregator is first
// (APIServices, discovery, merged OpenAPI), then the built-in groups, then custom resources. A path
// that none of them serves is 404.
//
// A request passes filters, endpoint, a kind's strategy and the storage; the watch cache notifies
// watchers. The process's own clients use the same path through package inprocess.
package apiserver
