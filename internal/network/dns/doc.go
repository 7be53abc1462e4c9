// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dns is the cluster's DNS server. It answers on each node, in the process that runs the node,
// the names of Kubernetes' DNS specification (version 1.1.0) from shared informers, and forwards all
// other names to the node's own resolvers.
//
//   - zone: from a name to its records, without I/O. Names, record types, TTLs and error codes are those
//     of CoreDNS with the configuration that kubeadm installs.
//   - records: the objects of the informers, by indexes that the informers keep.
//   - forwarder: the cache and the resolvers of the node.
//   - Server: UDP and TCP.
//   - Publisher: the Service kube-system/kube-dns and this server's EndpointSlice.
package dns
