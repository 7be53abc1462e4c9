// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway runs the conformance suite of the Gateway API against the binary, with real containers, and writes
// its report. It is a module of its own, because the suite is one.
package gateway
