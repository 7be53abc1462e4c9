// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is the name of the program as a kubectl plugin, which runs as "kubectl kindred".
const pluginName = "kubectl-kindred"

// plugged is the annotation of a root command that runs as a kubectl plugin.
const plugged = "plugin"

// NewFor returns the root command of a program that was started under a name. Under pluginName it is
// a kubectl plugin and finds clusters as kubectl does.
func NewFor(program, version string) *cobra.Command {
	root := New(version)
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kindred", plugged: "true"}
	}
	return root
}

func isPlugin(root *cobra.Command) bool { return root.Annotations[plugged] != "" }
