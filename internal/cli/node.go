// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred"
	"github.com/kindred-project/kindred/internal/systemd"
)

func newNode(version string) *cobra.Command {
	var options kindred.NodeOptions
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run static pods on this machine, without an API server",
		Long: `Run a node agent in the foreground, without an API server, until it is interrupted.

It runs static pods: the manifests in a directory (--static-pods), or at the
staticPodPath or staticPodURL of a kubelet configuration. The pods are containers on
a private containerd, which outlives the agent. "kindred kubectl get --raw /pods"
shows them, and "kindred reset" removes everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			options.DataDir, options.Version, options.Flags = layout.Root, version, flagValues(cmd)
			return runNode(cmd, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.StaticPods, "static-pods", "", "directory with the manifests of static pods, or a single one; replaces staticPodPath of --kubelet-config")
	flags.StringVar(&options.KubeletConfig, "kubelet-config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1)")
	flags.StringVar(&options.KubeletConfigDir, "kubelet-config-dir", "", "directory with files *.conf that are merged over --kubelet-config in the order of their names")
	flags.StringVar(&options.NodeName, "node-name", "", "name of the node, which the names of its pods end with (default the host name)")
	flags.StringVar(&options.ContainerRuntimeEndpoint, "container-runtime-endpoint", "", "CRI endpoint of a container runtime to use instead of a private containerd")
	flags.StringVar(&options.PodCIDR, "pod-cidr", "", "CIDRs of the pods: IPv4, and IPv6 after a comma (default a free /24 of 10.244.0.0/16)")
	return cmd
}

// runNode runs a node without an API server until a signal or a failure.
func runNode(cmd *cobra.Command, options kindred.NodeOptions) error {
	options.Progress, options.Notice = nodeOutput(cmd)
	start := func(ctx context.Context) (*kindred.Node, error) { return kindred.StartNode(ctx, options) }
	return serveNode(cmd, options.DataDir, start, func(node *kindred.Node) {
		printf(cmd, "the pods: kubectl --kubeconfig %s get --raw /pods\n", node.Kubeconfig())
	})
}

// nodeOutput returns the functions that print the steps of a node's start, and notices.
func nodeOutput(cmd *cobra.Command) (progress func(step string, took time.Duration), notice func(line string)) {
	return func(step string, took time.Duration) { printStep(cmd, step, took) }, func(line string) { printf(cmd, "%s\n", line) }
}

// serveNode runs a node until a signal or a failure. It calls ready after each start of the node: there is another one when the address of
// the machine changes.
func serveNode(cmd *cobra.Command, dataDir string, start func(context.Context) (*kindred.Node, error), ready func(*kindred.Node)) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	notifier, err := systemd.TakeNotifier()
	if err != nil {
		return err
	}
	closeLog, err := logTo(dataDir)
	if err != nil {
		return err
	}
	defer closeLog()
	mindMemory := sync.OnceFunc(func() {
		go paceGC(ctx, clock.RealClock{})
		go keepFree(ctx, clock.RealClock{})
	})
	for {
		err := runUntilMoved(ctx, cmd, notifier, start, func(node *kindred.Node) {
			ready(node)
			mindMemory()
		})
		if !errors.Is(err, kindred.ErrMoved) {
			return err
		}
		printf(cmd, "%v; the node is started again\n", err)
	}
}

// runUntilMoved runs a node until ctx ends, it fails, or its machine has another address.
func runUntilMoved(ctx context.Context, cmd *cobra.Command, notifier systemd.Notifier, start func(context.Context) (*kindred.Node, error), ready func(*kindred.Node)) error {
	began := clock.RealClock{}.Now()
	node, err := start(ctx)
	if err != nil {
		return upError(ctx, err)
	}
	defer node.Stop()
	printf(cmd, "ready in %d ms\n", clock.RealClock{}.Since(began).Milliseconds())
	ready(node)
	notify(cmd, notifier, systemd.Ready+"\n"+systemd.Status("API at "+node.Server()))
	select {
	case <-ctx.Done():
		notify(cmd, notifier, systemd.Stopping)
		return nil
	case err := <-node.Failed():
		return err
	}
}
