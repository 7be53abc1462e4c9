// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kindred is a Kubernetes cluster in one process.
package main

import (
	"os"

	"github.com/kindred-project/kindred/internal/cli"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() { os.Exit(cli.Execute(cli.NewFor(os.Args[0], version))) }
