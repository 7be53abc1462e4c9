// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line, one file a verb. A verb reads its flags, finds
// the data directory (datadir.go) and calls those who do the work; what it returns as
// an error becomes one line on standard error and the exit status (errors.go).
package cli
