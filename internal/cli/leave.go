// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
)

func newLeave() *cobra.Command {
	var force bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Evict the pods of this machine, and end its membership in a cluster",
		Long: `End what "kindred join" began: no pods are scheduled to this machine any more, those
that it has are evicted as PodDisruptionBudgets allow, "kindred join" is stopped, and
the Node is deleted. "kindred reset" then removes the data.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return leave(ctx, cmd, layout, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also evict pods that nothing creates elsewhere, which are lost")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait until the pods have ended")
	return cmd
}

func leave(ctx context.Context, cmd *cobra.Command, layout datadir.Layout, force bool) error {
	member, err := join.ReadMembership(layout.Membership())
	if err != nil {
		return err
	}
	credentials, err := credentialsOf(layout)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(credentials.Config())
	if err != nil {
		return err
	}
	if err := join.Drain(ctx, client, member.Node, force, clock.RealClock{}, func(why string) { printf(cmd, "%s\n", why) }); err != nil {
		return err
	}
	if err := stopProcess(ctx, layout); err != nil {
		return err
	}
	if err := join.Remove(ctx, client, member.Node); err != nil {
		return err
	}
	if err := os.Remove(layout.Membership()); err != nil {
		return err
	}
	printf(cmd, "node %s has left the cluster at %s; \"kindred reset\" removes its data\n", member.Node, member.Server)
	return nil
}

// credentialsOf returns the credentials of the node that this machine is with a data directory.
func credentialsOf(layout datadir.Layout) (*join.Credentials, error) {
	member, err := join.ReadMembership(layout.Membership())
	if err != nil {
		return nil, err
	}
	if member.Server == "" {
		return nil, fmt.Errorf("%w with the data directory %s", join.ErrNotJoined, layout.Root)
	}
	return join.Open(member, layout.PKI(), clock.RealClock{})
}

// stopProcess stops the process that runs in a data directory, if there is one, and waits until it has ended.
func stopProcess(ctx context.Context, layout datadir.Layout) error {
	signalled := 0
	for {
		pid, err := layout.Holder()
		if err != nil || pid == 0 {
			return err
		}
		if pid != signalled {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop process %d, which runs the node: %w", pid, err)
			}
			signalled = pid
		}
		select {
		case <-clock.RealClock{}.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("process %d, which runs the node, does not end: %w", pid, ctx.Err())
		}
	}
}
