// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert rewrites manifests in another version of their API, without a cluster. It uses the
// conversions and defaults with which the API server serves these versions, and those of some versions
// that Kindred does not serve.
//
// A manifest keeps its meaning: what the old version defaults differently is written out. Notes say
// what was written out, what is lost, and what else differs.
package convert
