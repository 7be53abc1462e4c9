// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is what a plugin of kubectl's is called so that it runs as "kubectl kindred".
const pluginName = "kubectl-kindred"

// plugged is the annotation of a root command that runs as a plugin.
const plugged = "plugin"

// NewFor is the command line of a program that was started by a name: as a plugin of
// kubectl's it is called so, and finds clusters as kubectl does.
func NewFor(program, version string) *cobra.Command {
	root := New(version)
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kindred", plugged: "true"}
	}
	return root
}

func isPlugin(root *cobra.Command) bool { return root.Annotations[plugged] != "" }
