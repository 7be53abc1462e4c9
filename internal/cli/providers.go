// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred"
	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/host"
	"github.com/kindred-project/kindred/internal/providers"
)

// renewal is the time between two installations of a release. The second renews certificates, and mends what was changed.
const renewal = 24 * time.Hour

// clusterAPI keeps a release of Cluster API installed in the cluster of this process.
type clusterAPI struct {
	release *providers.Release
	cmd     *cobra.Command
	clock   clock.WithTicker
}

// openClusterAPI reads the release in a directory, or returns nil if dir is "".
func openClusterAPI(cmd *cobra.Command, dir string) (*clusterAPI, error) {
	if dir == "" {
		return nil, nil
	}
	release, err := providers.Open(dir, os.Getenv)
	if err != nil {
		return nil, usageError{err}
	}
	for _, dir := range release.MachinesDirs() {
		if err := checkMachinesDir(dir); err != nil {
			return nil, usageError{err}
		}
	}
	return &clusterAPI{release, cmd, clock.RealClock{}}, nil
}

// checkMachinesDir reports why a provider cannot make machines in a directory.
func checkMachinesDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("directory of machines %q: it must be an absolute path", dir)
	}
	_, err := host.Open(dir)
	return err
}

// keep installs the release, and again each day until ctx is done. An error is printed: the cluster works without Cluster API.
func (a *clusterAPI) keep(ctx context.Context, cluster *kindred.Cluster, layout datadir.Layout) {
	if a == nil {
		return
	}
	first := true
	for {
		began := a.clock.Now()
		err := a.install(ctx, cluster, layout, first)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			printf(a.cmd, "Cluster API is not installed: %v\nThe next start tries again, and so does this process tomorrow.\n", err)
		case first:
			printf(a.cmd, "Cluster API is ready after %d ms\n", a.clock.Since(began).Milliseconds())
		}
		first = false
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(renewal):
		}
	}
}

// install loads the images, and applies the objects. Steps are printed if it is the first time.
func (a *clusterAPI) install(ctx context.Context, cluster *kindred.Cluster, layout datadir.Layout, first bool) error {
	instance, err := running(layout)
	if err != nil {
		return err
	}
	if instance.ContainerRuntime == "" {
		return errors.New("its managers are pods, and this machine is no node with a container runtime")
	}
	progress := func(step string, took time.Duration) {
		if first {
			printStep(a.cmd, step, took)
		}
	}
	began := a.clock.Now()
	if _, err := containerd.ImportImages(ctx, instance.ContainerRuntime, a.release.Images...); err != nil {
		return err
	}
	progress("images of Cluster API", a.clock.Since(began))
	c, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		return err
	}
	installer := &providers.Installer{
		Client: c, Clock: a.clock, Progress: progress,
		Notice: func(line string) { printf(a.cmd, "%s\n", line) },
	}
	if err := a.noteMachinesDirs(ctx, installer, layout); err != nil {
		return err
	}
	return installer.Install(ctx, a.release)
}

// noteMachinesDirs stores where the providers make machines, before they do, so that "kindred reset" finds them.
func (a *clusterAPI) noteMachinesDirs(ctx context.Context, installer *providers.Installer, layout datadir.Layout) error {
	installed, err := installer.MachinesDirs(ctx)
	if err != nil {
		return err
	}
	for _, dir := range append(a.release.MachinesDirs(), installed...) {
		if checkMachinesDir(dir) != nil {
			continue // no machine can be there
		}
		if err := layout.AddMachinesDir(filepath.Clean(dir)); err != nil {
			return err
		}
	}
	return nil
}
