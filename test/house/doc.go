// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house holds those rules of the house (docs/architecture.md) that a test can
// hold: who may use whom, one clock, a header and a package comment everywhere, files
// that can be read in one go. It reads the source of every package of the repository,
// whatever its build tags, and needs nothing but the parser.
package house
