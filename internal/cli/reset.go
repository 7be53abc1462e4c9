// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/cert"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/host"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/machine"
)

func newReset() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Stop every container of the cluster and remove its data",
		Long: `Stops every container the cluster owns and removes its data directory: the API's
objects, certificates, images, volumes and logs. Machines of this host that it manages, as
those of clusters that Cluster API made, are removed with it. The cluster must not be running.

Machines are found in ` + host.DefaultRoot + ` and in each directory that the providers
of "kindred up --cluster-api" have used. Name another one with --machines-dir.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			err = layout.Check()
			if errors.Is(err, datadir.ErrEmpty) {
				printf(cmd, "nothing to remove: no cluster has run in %s\n", layout.Root)
				return nil
			}
			if err != nil {
				return err
			}
			return reset(cmd, layout)
		},
	}
	cmd.Flags().String(machinesDir, "", "remove the machines of this host in this directory, and in no other one")
	return cmd
}

// reset stops the containers before it removes the files that identify them, so that it can be repeated
// after a failure.
func reset(cmd *cobra.Command, layout datadir.Layout) error {
	lock, err := layout.Lock()
	if err != nil {
		return err
	}
	if err := stopContainers(cmd.Context(), layout); err != nil {
		return errors.Join(fmt.Errorf("nothing was removed, because not all containers could be stopped: %w", err), lock.Release())
	}
	if err := removeMachines(cmd, layout); err != nil {
		return errors.Join(err, lock.Release())
	}
	if err := errors.Join(machine.RemoveLogs(layout), unlink(layout)); err != nil {
		return errors.Join(err, lock.Release())
	}
	if err := errors.Join(os.RemoveAll(layout.Run()), lock.Remove()); err != nil {
		return errors.Join(err, lock.Release())
	}
	printf(cmd, "removed the cluster in %s\n", layout.Root)
	return nil
}

// removeMachines removes the machines of this host that the cluster manages: those of its workload clusters.
func removeMachines(cmd *cobra.Command, layout datadir.Layout) error {
	ca, err := cert.CertsFromFile(filepath.Join(layout.PKI(), "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 { // only root makes machines
		return nil
	}
	if err != nil {
		return err
	}
	owner := join.HashOf(ca[0])
	hosts, err := hostsOf(cmd, layout, owner)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		removed, err := h.Reset(cmd.Context(), owner)
		for _, name := range removed {
			printf(cmd, "removed machine %s\n", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hostsOf returns the directories of machines that are reset: that of the flag, or else those that "kindred up" has stored. The default directory, which
// it has not stored if clusterctl installed the providers, is added if the owner has something there.
func hostsOf(cmd *cobra.Command, layout datadir.Layout, owner string) ([]*host.Host, error) {
	if cmd.Flags().Changed(machinesDir) {
		h, err := hostOf(cmd)
		return []*host.Host{h}, err
	}
	dirs, err := layout.MachinesDirs()
	if err != nil {
		return nil, err
	}
	var all []*host.Host
	for _, dir := range dirs {
		h, err := host.Open(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	h, err := host.Open(host.DefaultRoot)
	if err != nil {
		return nil, err
	}
	if has, err := h.Has(owner); err != nil || !has || slices.Contains(dirs, host.DefaultRoot) {
		return all, err
	}
	return append(all, h), nil
}

// unlink removes the link to the node's directory that --kubelet-dir made.
func unlink(layout datadir.Layout) error {
	instance, _, err := layout.ReadInstance()
	if err != nil || instance.KubeletDir == "" {
		return err
	}
	return layout.UnlinkNode(instance.KubeletDir)
}

// stopContainers stops the cluster's pods in an external runtime, if it used one, and the private
// containerd with its pods, if there is one.
func stopContainers(ctx context.Context, layout datadir.Layout) error {
	names, err := containerd.NamesFor(layout.ID())
	if err != nil {
		return err
	}
	instance, _, err := layout.ReadInstance()
	if err != nil {
		return err
	}
	options := machine.RuntimeOptions(layout, names)
	if endpoint := instance.ContainerRuntime; endpoint != "" && endpoint != layout.RuntimeEndpoint() {
		if err := containerd.RemovePods(ctx, endpoint, map[string]string{containerd.ClusterLabel: layout.ID()}); err != nil {
			return err
		}
		if err := containerd.RemoveCgroups(ctx, options); err != nil {
			return err
		}
	}
	if err := machine.RemoveNetwork(ctx, names); err != nil {
		return err
	}
	if _, err := os.Stat(layout.Containerd()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return containerd.Reset(ctx, options)
}
