// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house checks rules that hold for the whole repository, whatever a file's build tags:
// the import rules and the source tree of docs/architecture.md, the files and names that the
// documents mention, one clock, headers, package comments, and the length of files. It parses
// the source of every package, and needs neither a build nor the network.
package house
