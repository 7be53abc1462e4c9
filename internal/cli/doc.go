// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line, with one file for each command. A command reads its flags,
// finds the data directory (datadir.go) and calls the packages that do the work. The error that it
// returns becomes one line on standard error and the exit status (errors.go).
package cli
