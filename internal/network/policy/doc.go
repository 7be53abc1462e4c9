// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy compiles NetworkPolicies and ClusterNetworkPolicies to fragments of an nftables table.
//
// [Compiler] gets objects one by one and returns the fragments that changed. It has no I/O and no clock, and the
// order of the objects does not matter: [Compile] is the same function for all objects at once.
//
// A packet is judged by its connection: the source as the client has it ("ct original saddr", before any
// masquerading), and the address and port of the server ("ct reply saddr", after translation by Services). Both
// are the same for packets of either direction, so a connection that a new policy forbids stops in both. Three base
// chains (forward, input, output) call two chains:
//
//	policy-egress   looks the client up in the map egress4 and calls the chain of its policies
//	policy-ingress  looks the server up in the map ingress4 and calls the chain of its policies
//
// The maps have the isolated pods of this node. Pods that the same policies select share a chain: the rules of the Admin
// tier in order, then those of NetworkPolicies, which return, and a drop at the end, or for pods without NetworkPolicies
// those of the Baseline tier. There is one rule for each combination of peers and ports. Accept returns, Deny drops, and
// Pass goes to a second chain, which has what follows the Admin tier. Peers are sets of addresses: one for each pair
// of selectors, whichever policies use it. All of it exists for IPv6 as well.
//
// Until a pod of this node is known, all packets from and to its address are dropped, if the cluster has any
// policy. [Gate] lets the node agent wait for that moment.
//
// Decisions 18 and 22 have the reasons.
package policy
