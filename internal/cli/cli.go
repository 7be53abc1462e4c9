// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the root command of a program with this version.
func New(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "kindred",
		Short: "A Kubernetes cluster in one process",
		Long: `Kindred is a Kubernetes cluster in one process: API, controllers, scheduler and
node. "kindred up" starts it, "kindred kubectl" talks to it.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		// It runs after flags and arguments were validated; see Execute.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { markStarted(cmd) },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	addDataDirFlag(root)
	root.AddCommand(
		newUp(version),
		newInstall(version),
		newUninstall(),
		newNode(version),
		newToken(),
		newServer(),
		newBackup(version),
		newCert(),
		newRestore(),
		newJoin(version),
		newLeave(),
		newKubectl(),
		newTree(),
		newWhy(),
		newDelete(),
		newUndelete(),
		newLint(version),
		newMachine(),
		newImage(),
		newMove(),
		newConvert(),
		newCompletion(),
		newStatus(),
		newReset(),
		newCheckStore(),
		newVersion(version),
	)
	return root
}

// group returns a command that only has subcommands.
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

// printf writes to the command's standard output and ignores errors, such as of a closed pipe.
func printf(cmd *cobra.Command, format string, args ...any) {
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), format, args...)
}

// flagValues returns the flags of a command and their values.
func flagValues(cmd *cobra.Command) map[string]string {
	flags := map[string]string{}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flags[flag.Name] = flag.Value.String() })
	return flags
}
