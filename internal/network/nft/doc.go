// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nft keeps one nftables table as a set of fragments wants it.
//
// A [Fragment] has everything that one source, such as a Service, needs in the table: chains with rules, sets and maps
// with their elements. [Content] is the union of the fragments of all sources, and knows what changed since
// it was last written. [Table] writes it: each change is one transaction of the kernel, so that no packet
// meets half of it.
//
// Rules are never read back: nft prints some of them in a form that it would not accept. A new process
// replaces what the previous one left in one transaction, and keeps only the elements that the kernel added
// itself (session affinity). They are lost if the previous one was of another version, with definitions that the
// kernel does not change: then the transaction deletes the table first.
package nft
