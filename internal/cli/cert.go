// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
)

func newCert() *cobra.Command {
	return group("cert", "Certificates of this machine", newCertList(), newCertRotate())
}

func newCertList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "List the certificates in the data directory, and when they expire", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantsJSON(output)
			if err != nil {
				return err
			}
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			all, err := pki.List(layout.PKI())
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd, all)
			}
			return printCertificates(cmd, all, clock.RealClock{}.Now())
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func printCertificates(cmd *cobra.Command, all []pki.Stored, now time.Time) error {
	out := printers.GetNewTabWriter(cmd.OutOrStdout())
	fmt.Fprintln(out, "NAME\tSUBJECT\tISSUER\tEXPIRES\tIN")
	for _, c := range all {
		left := "expired"
		if c.Expires.After(now) {
			left = duration.HumanDuration(c.Expires.Sub(now))
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Subject, c.Issuer, c.Expires.Format(time.RFC3339), left)
	}
	return out.Flush()
}

func newCertRotate() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Replace the certificates that this machine's authorities have issued",
		Long: `Discard the certificates that the authorities in the data directory have issued, with their
keys, such as those of the API server and of the administrator's kubeconfig. A running
cluster has new ones within a minute, and keeps its connections. Earlier ones stay valid
until they expire.

Certificates are renewed by themselves when a third of their time is left: rotate them if a
key may be known to others. The authorities stay, and so does the key of service account
tokens. Nodes that have joined renew their certificates by requests to the API.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			return rotate(cmd, layout)
		},
	}
}

func rotate(cmd *cobra.Command, layout datadir.Layout) error {
	discarded, err := pki.Discard(layout.PKI())
	if err != nil {
		return err
	}
	if len(discarded) > 0 {
		printf(cmd, "discarded: %s\n", strings.Join(discarded, ", "))
		return nil
	}
	if member, err := join.ReadMembership(layout.Membership()); err == nil && member.Server != "" {
		return fmt.Errorf("this machine is a node: it requests its certificates from %s, and renews them itself; to have new ones at once, \"kindred leave\" and join again", member.Server)
	}
	return fmt.Errorf("no certificates of an authority in %s", layout.PKI())
}
