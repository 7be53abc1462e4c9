// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/kindred-project/kindred"
	"github.com/kindred-project/kindred/internal/systemd"
)

func newInstallJoin(version string) *cobra.Command {
	var options kindred.JoinOptions
	var noStart bool
	cmd := &cobra.Command{
		Use:   "join [SERVER]",
		Short: "Run a node of a cluster as a service of systemd, from boot on",
		Long: `Makes this machine a node of a cluster, as "kindred join" does, and writes the unit
` + systemd.Name + `, which runs it from boot on. The machine gets its certificate first, so
that the token is not written to the unit.`,
		Example: "  kindred install join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --ca-hash sha256:...",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				options.Server = args[0]
			}
			options.Version = version
			return installJoin(cmd, options, !noStart)
		},
	}
	cmd.Flags().AddFlagSet(joinFlags(&options))
	cmd.Flags().BoolVar(&noStart, noStartFlag, false, "start the node at the next boot, not now")
	cmd.SetHelpFunc((&cobra.Command{}).HelpFunc()) // the parent's is its own
	return cmd
}

// installJoin admits this machine, and sets up the service of its node.
func installJoin(cmd *cobra.Command, options kindred.JoinOptions, start bool) error {
	layout, err := layoutOf(cmd)
	if err != nil {
		return err
	}
	options.DataDir = layout.Root
	manager, err := prepareService(cmd, layout, start)
	if err != nil {
		return err
	}
	if err := kindred.AdmitNode(cmd.Context(), options); err != nil {
		return upError(cmd.Context(), err)
	}
	if err := runService(cmd, layout, manager, "join", start, "token", "ca-hash", "wait"); err != nil || !start {
		return err
	}
	printf(cmd, "ready\n")
	return nil
}
