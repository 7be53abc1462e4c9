// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kindred-project/kindred/internal/containerd"
)

func newImage() *cobra.Command {
	return group("image", "Manage container images", newImageLoad())
}

func newImageLoad() *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE...",
		Short: "Import OCI and docker image archives, plain or gzipped",
		Long: `Imports the images of OCI and docker archives, as written by "docker save",
"podman save", "skopeo copy" or "ko", into the node's container runtime, so that
pods can use them without a registry.`,
		Example: "  docker save app:1 -o app.tar && kindred image load app.tar",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			instance, err := running(layout)
			if err != nil {
				return err
			}
			if instance.ContainerRuntime == "" {
				return fmt.Errorf("the cluster in %s has no container runtime: simulated nodes need no images", layout.Root)
			}
			names, err := containerd.ImportImages(cmd.Context(), instance.ContainerRuntime, files...)
			for _, name := range names {
				printf(cmd, "imported %s\n", name)
			}
			return err
		},
	}
}
