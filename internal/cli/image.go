// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kindred-project/kindred/internal/containerd"
)

func newImage() *cobra.Command {
	return group("image", "Manage container images", newImageLoad(), newImageRemove())
}

func newImageLoad() *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE...",
		Short: "Import OCI and docker image archives, plain or gzipped",
		Long: `Imports the images of OCI and docker archives, as written by "docker save",
"podman save", "skopeo copy" or "ko", into the node's container runtime, so that
pods can use them without a registry. The node never removes them by itself;
"kindred image rm" does.`,
		Example: "  docker save app:1 -o app.tar && kindred image load app.tar",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			endpoint, err := runtimeOf(cmd)
			if err != nil {
				return err
			}
			names, err := containerd.ImportImages(cmd.Context(), endpoint, files...)
			for _, name := range names {
				printf(cmd, "imported %s\n", name)
			}
			return err
		},
	}
}

func newImageRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"remove"},
		Short:   "Remove images from the node",
		Long: `Removes images, with all their names, from the node's container runtime. An image
that a container uses, whether it runs or not, is not removed.`,
		Example: "  kindred image rm app:1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			endpoint, err := runtimeOf(cmd)
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				if err := containerd.RemoveImage(cmd.Context(), endpoint, name); err != nil {
					errs = append(errs, err)
					continue
				}
				printf(cmd, "removed %s\n", name)
			}
			return errors.Join(errs...)
		},
	}
}

// runtimeOf returns the CRI endpoint of the running cluster.
func runtimeOf(cmd *cobra.Command) (endpoint string, err error) {
	layout, err := layoutOf(cmd)
	if err != nil {
		return "", err
	}
	instance, err := running(layout)
	if err != nil {
		return "", err
	}
	if instance.ContainerRuntime == "" {
		return "", fmt.Errorf("the cluster in %s has no container runtime: simulated nodes need no images", layout.Root)
	}
	return instance.ContainerRuntime, nil
}
