// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostport compiles the host ports of a node's pods (containers[].ports[].hostPort) into rules of an nftables
// table. It has no state and does no I/O.
//
// It takes the place of the CNI plugin portmap, and follows it: a packet to a port of a local address is translated
// to the pod. The client's address is kept, unless the client is a pod of this node or 127.0.0.1. Services
// take precedence, because their chains (package service) see the packet first, as with kube-proxy and portmap.
package hostport
