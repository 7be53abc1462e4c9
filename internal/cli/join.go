// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kindred-project/kindred"
)

func newJoin(version string) *cobra.Command {
	var options kindred.JoinOptions
	cmd := &cobra.Command{
		Use:   "join [SERVER]",
		Short: "Make this machine a node of a cluster that runs elsewhere",
		Long: `Run a node of a cluster in the foreground, until it is interrupted.

"kindred token create" on the server prints the whole line. This machine checks the
server by the hash of its authority, gets a certificate with the token, and runs pods
as containers on a private containerd, which outlives it. After that, "kindred join"
without arguments continues as the same node. "kindred leave" ends the membership.`,
		Example: "  kindred join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --ca-hash sha256:...",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				options.Server = args[0]
			}
			options.DataDir, options.Version, options.Flags = layout.Root, version, flagValues(cmd)
			delete(options.Flags, "token") // it is a secret, and /flagz shows flags
			return runJoin(cmd, options)
		},
	}
	cmd.Flags().AddFlagSet(joinFlags(&options))
	return cmd
}

// joinFlags returns the flags of "kindred join".
func joinFlags(options *kindred.JoinOptions) *pflag.FlagSet {
	flags := pflag.NewFlagSet("join", pflag.ContinueOnError)
	flags.StringVar(&options.Token, "token", "", "bootstrap token of the cluster")
	flags.StringVar(&options.CAHash, "ca-hash", "", "hash of the key of the cluster's authority: sha256: and 64 hexadecimal digits")
	flags.DurationVar(&options.Wait, "wait", 0, "how long to wait for a server that does not answer, or does not know the token yet")
	flags.StringVar(&options.NodeName, "node-name", "", "name of the node (default that with which it has joined, or the host name)")
	flags.StringVar(&options.NodeIP, "node-ip", "", "addresses at which other machines reach this one: IPv4, and IPv6 after a comma (default that from which it reaches the server)")
	flags.StringVar(&options.PodNetwork, "pod-network", kindred.PodNetworkAuto, "how packets for pods get to other machines: directly where they share a link and else through a VXLAN tunnel (auto), always through a tunnel (vxlan), or encrypted (wireguard), on all machines alike")
	flags.StringSliceVar(&options.LoadBalancerPools, "load-balancer-pool", nil, "CIDRs of addresses for Services of the type LoadBalancer that this machine announces by ARP and NDP; the servers must have them too")
	flags.StringVar(&options.KubeletDir, "kubelet-dir", "", "where CSI drivers expect the kubelet's directory, usually /var/lib/kubelet: becomes a link to this node's directory")
	flags.StringVar(&options.KubeletConfig, "kubelet-config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1)")
	flags.StringVar(&options.KubeletConfigDir, "kubelet-config-dir", "", "directory with files *.conf that are merged over --kubelet-config in the order of their names")
	flags.StringVar(&options.ContainerRuntimeEndpoint, "container-runtime-endpoint", "", "CRI endpoint of a container runtime to use instead of a private containerd")
	return flags
}

// runJoin runs a node of a cluster until a signal or a failure.
func runJoin(cmd *cobra.Command, options kindred.JoinOptions) error {
	options.Progress, options.Notice = nodeOutput(cmd)
	start := func(ctx context.Context) (*kindred.Node, error) { return kindred.JoinNode(ctx, options) }
	return serveNode(cmd, options.DataDir, start, func(node *kindred.Node) {
		printf(cmd, "a node of the cluster at %s\n", node.Server())
	})
}
