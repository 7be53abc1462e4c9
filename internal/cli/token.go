// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/join"
)

// defaultTTL is how long tokens are valid, as kubeadm's.
const defaultTTL = 24 * time.Hour

func newToken() *cobra.Command {
	return group("token", "Tokens with which machines join the cluster", newTokenCreate(), newTokenList(), newTokenDelete())
}

func newTokenCreate() *cobra.Command {
	var c connection
	var ttl time.Duration
	var server, description string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token, and print the line with which machines join",
		Long: `Make a token, and print the line with which machines become nodes of the cluster.

Whoever has the line can add nodes until the token expires. The first token also
publishes the cluster's authority (the ConfigMap cluster-info in kube-public, which
anybody can read) and the roles of machines that join.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl <= 0 {
				return usagef("--ttl must be positive")
			}
			client, config, err := c.client(cmd)
			if err != nil {
				return err
			}
			url, err := serverFor(server, config)
			if err != nil {
				return err
			}
			invitation, err := join.Invite(cmd.Context(), client, url, config.CAData, clock.RealClock{}.Now().Add(ttl), description)
			if err != nil {
				return err
			}
			printf(cmd, "kindred join %s --token %s --ca-hash %s\n", invitation.Server, invitation.Token, invitation.Hash)
			return nil
		},
	}
	c.addFlags(cmd, "the cluster")
	cmd.Flags().DurationVar(&ttl, "ttl", defaultTTL, "how long the token is valid")
	cmd.Flags().StringVar(&server, "server", "", "URL at which machines reach the API (default that of the kubeconfig)")
	cmd.Flags().StringVar(&description, "description", "", "what the token is for")
	return cmd
}

func newTokenList() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := c.client(cmd)
			if err != nil {
				return err
			}
			found, err := join.Tokens(cmd.Context(), client, clock.RealClock{}.Now())
			if err != nil {
				return err
			}
			return printTokens(cmd, found)
		},
	}
	c.addFlags(cmd, "the cluster")
	return cmd
}

func printTokens(cmd *cobra.Command, all []join.Token) error {
	out := printers.GetNewTabWriter(cmd.OutOrStdout())
	fmt.Fprintln(out, "ID\tEXPIRES\tDESCRIPTION")
	for _, t := range all {
		expires := "never"
		if !t.Expires.IsZero() {
			expires = t.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", t.ID, expires, t.Description)
	}
	return out.Flush()
}

func newTokenDelete() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use: "delete TOKEN", Short: "Delete a token, given as a whole or by its ID", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, _, err := c.client(cmd)
			if err != nil {
				return err
			}
			return join.Revoke(cmd.Context(), client, args[0])
		},
	}
	c.addFlags(cmd, "the cluster")
	return cmd
}

// client returns a client of the cluster, and its configuration, which has the authority as data.
func (c *connection) client(cmd *cobra.Command) (kubernetes.Interface, *rest.Config, error) {
	loader, err := c.loader(cmd)
	if err != nil {
		return nil, nil, err
	}
	config, err := configOf(loader)
	if err != nil {
		return nil, nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	return client, config, err
}

// serverFor returns the URL at which machines reach the API: the given one, or that of the configuration.
func serverFor(given string, config *rest.Config) (string, error) {
	if given != "" {
		return given, nil
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return "", fmt.Errorf("only this machine reaches the API at %s: start the cluster with --bind-address and an address of this machine, or name one that other machines reach with --server", config.Host)
	}
	return config.Host, nil
}
