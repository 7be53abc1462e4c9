// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providers installs Cluster API in a cluster: its core and the providers of a release, with certificates for their webhooks,
// and the inventory by which clusterctl knows them.
package providers
