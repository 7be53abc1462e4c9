// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// New is the command line of a program of this version.
func New(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "kindred",
		Short: "A Kubernetes cluster in one process",
		Long: `Kindred is a Kubernetes cluster in one process: API, controllers, scheduler and
node. "kindred up" starts it, "kindred kubectl" talks to it.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		// It runs after flags and arguments were found good; see Execute.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { markStarted(cmd) },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	addDataDirFlag(root)
	root.AddCommand(
		newUp(version),
		newKubectl(),
		newTree(),
		newWhy(),
		newDelete(),
		newUndelete(),
		newLint(version),
		newImage(),
		newMove(),
		newCompletion(),
		newStatus(),
		newReset(),
		newCheckStore(),
		newVersion(version),
	)
	return root
}

// group is a verb that only has verbs below it.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// printf writes to the command's standard output. That a reader has gone away is
// nobody's error.
func printf(cmd *cobra.Command, format string, args ...any) {
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), format, args...)
}
