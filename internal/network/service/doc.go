// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service compiles Services into rules of an nftables table. It has no state and does no I/O.
//
// A packet to a Service takes the same few steps in a cluster with one Service and with ten thousand:
//
//  1. A map (entries4, or nodeports4 for node ports) finds the chain for its destination: address, protocol, port.
//  2. The chain (pick4-3) exists once for each number of endpoints. It draws a number below it.
//  3. The number leads to a chain (endpoint4-1) and its map (endpoints4-1), which has the endpoint of that number
//     for each destination; the packet is translated to it.
//
// So a Service is a few elements of maps and no chain of its own, unless it has session affinity or source
// ranges. Each part exists for IPv4 and IPv6; the names end in 4 and 6.
//
// Two decisions depend on the source of a packet. Sources in the cluster, pods and the node itself, are looked
// up in internal4 first: for them the external traffic policy Local means Cluster (KEP-3685). Packets to
// external addresses under the policy Cluster are masqueraded, because the endpoint may be on another node,
// and its answers must come back to this one. The packet carries that decision as a bit of its mark to
// the hook that masquerades.
package service
