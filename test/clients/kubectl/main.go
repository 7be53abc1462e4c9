// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl is upstream's kubectl in the version of the module file that it is built with: go
// build -modfile=v1.35.mod.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
