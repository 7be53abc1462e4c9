// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/servers"
	"github.com/kindred-project/kindred/internal/storage"
)

func newServer() *cobra.Command {
	return group("server", "Servers of the cluster", newServerRemove())
}

func newServerRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove another server for good",
		Long: `Remove another server, which has stopped or is lost for good: its etcd is no member of
the cluster any more, so that it does not count for the majority. "kindred status"
shows the names. To let the machine join again, reset its data directory first.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			return removeServer(cmd, layout, args[0])
		},
	}
}

func removeServer(cmd *cobra.Command, layout datadir.Layout, name string) error {
	instance, err := running(layout)
	if err != nil {
		return err
	}
	if own, err := layout.ServerName(); err != nil || own == name {
		return usagef("%s is the server of the data directory %s: remove it on another one", name, layout.Root)
	}
	// A server of the time of a backup is no member of the etcd cluster that was restored.
	unknown := removeMember(cmd.Context(), layout, instance, name)
	if unknown != nil && !errors.Is(unknown, storage.ErrNoMember) {
		return unknown
	}
	config, err := clientcmd.BuildConfigFromFlags("", layout.Kubeconfig())
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", layout.Kubeconfig(), err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	err = client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(cmd.Context(), servers.LeaseOf(name), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) && unknown != nil {
		return fmt.Errorf("%w, and no server has that name; \"kindred status\" shows the names", unknown)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	printf(cmd, "server %s is removed; \"kindred reset\" on its machine removes its data\n", name)
	return nil
}

// removeMember removes a server's member from the etcd cluster, if the servers have one of their own.
func removeMember(ctx context.Context, layout datadir.Layout, instance datadir.Instance, name string) error {
	if instance.EtcdMember == "" {
		return nil
	}
	members, err := membersOf(ctx, layout, instance)
	if err != nil {
		return err
	}
	defer members.Close()
	return members.Remove(ctx, name)
}

// membersOf connects to the members of the etcd cluster whose member runs in a data directory.
func membersOf(ctx context.Context, layout datadir.Layout, instance datadir.Instance) (*storage.Members, error) {
	// The answer says which members do not respond. gRPC would print that as well, for each attempt to connect.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	ca, cert, key := pki.EtcdFiles(layout.PKI())
	return storage.ConnectMembers(ctx, ca, cert, key, instance.EtcdMember)
}
