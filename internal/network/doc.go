// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network routes a node's traffic to Services, and restricts that of its pods by NetworkPolicies and
// ClusterNetworkPolicies. It knows
// the API and the kernel, and nothing else.
//
// What the kernel should do is computed by packages without I/O (service, policy). This package watches the API, and
// writes what changed into one nftables table (nft). The table outlives the process: while it is stopped,
// connections to running pods continue, and new ones find the endpoints of the last write.
package network
