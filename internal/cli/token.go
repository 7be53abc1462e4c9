// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/join"
)

// defaultTTL is how long a token is valid by default; kubeadm has the same default.
const defaultTTL = 24 * time.Hour

func newToken() *cobra.Command {
	return group("token", "Tokens with which machines join the cluster", newTokenCreate(), newTokenList(), newTokenDelete())
}

func newTokenCreate() *cobra.Command {
	var c connection
	var ttl time.Duration
	var url, description string
	var forServer bool
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Make a token, and print the line with which machines join",
		Long: `Make a token, and print the line with which machines become nodes of the cluster.

Anyone who has the line can add nodes until the token expires. The first token also
publishes the cluster's authority (the ConfigMap cluster-info in kube-public, which
anybody can read) and the roles of machines that join.

TOKEN has the form abcdef.0123456789abcdef, and is random by default. One that the
cluster has already is valid for the new time.

With --server the machines become servers, which have the same keys and use the same
etcd, or add a member to it. The keys are taken from the data directory, and stored in the cluster until
the token expires, encrypted with a key that only the line has.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl <= 0 {
				return usagef("--ttl must be positive")
			}
			given := strings.Join(args, "")
			if given != "" && !tokenutil.IsValidBootstrapToken(given) {
				return usagef("the token does not have the form abcdef.0123456789abcdef, in small letters and digits")
			}
			client, config, err := c.client(cmd)
			if err != nil {
				return err
			}
			server, err := serverFor(url, config)
			if err != nil {
				return err
			}
			invitation, err := join.Invite(cmd.Context(), client, join.Offer{
				Server: server, CA: config.CAData, Token: given, Expires: clock.RealClock{}.Now().Add(ttl), Description: description,
			})
			if err != nil {
				return err
			}
			if forServer {
				return inviteServer(cmd, client, invitation)
			}
			printf(cmd, "kindred join %s --token %s --ca-hash %s\n", invitation.Server, invitation.Token, invitation.Hash)
			return nil
		},
	}
	c.addFlags(cmd, "the cluster")
	cmd.Flags().DurationVar(&ttl, "ttl", defaultTTL, "how long the token is valid")
	cmd.Flags().StringVar(&url, "url", "", "URL at which machines reach the API (default that of the kubeconfig)")
	cmd.Flags().BoolVar(&forServer, "server", false, "the machines become servers of the cluster, and not only nodes")
	cmd.Flags().StringVar(&description, "description", "", "what the token is for")
	return cmd
}

// inviteServer stores the keys of the cluster in the data directory for a token, and prints the line with which machines become
// servers.
func inviteServer(cmd *cobra.Command, client kubernetes.Interface, invitation join.Invitation) error {
	layout, err := layoutOf(cmd)
	if err != nil {
		return err
	}
	instance, _, err := layout.ReadInstance()
	if err != nil {
		return err
	}
	etcd := "--etcd-servers " + strings.Join(instance.Etcd, ",")
	switch {
	case instance.EtcdMember != "":
		etcd = "--etcd-embedded --join-etcd " + instance.EtcdMember
	case len(instance.Etcd) == 0:
		return fmt.Errorf("the store of the cluster in %s is in its own process, alone: start it with --etcd-embedded, so that other servers can join it", layout.Root)
	}
	files, err := pki.Shared(layout.PKI())
	if err != nil {
		return fmt.Errorf("the keys of the cluster: %w", err)
	}
	server, err := join.InviteServer(cmd.Context(), client, invitation, files)
	if err != nil {
		return err
	}
	printf(cmd, "kindred up %s --join %s --token %s --ca-hash %s --certificate-key %s\n", etcd, server.Server, server.Token, server.Hash, server.Key)
	return nil
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
		return "", fmt.Errorf("only this machine reaches the API at %s: start the cluster with --server, or name one that other machines reach with --url", config.Host)
	}
	return config.Host, nil
}
