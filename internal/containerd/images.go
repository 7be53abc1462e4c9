// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"fmt"
	"slices"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The label of an image that must not be removed while its disk is full. CRI reports it since containerd 1.7.
const (
	pinnedLabel = "io.cri-containerd.pinned"
	pinned      = "pinned"
)

// PinnedImages returns the names of the images that are pinned in the containerd at a CRI endpoint; none if the runtime is
// not containerd.
func PinnedImages(ctx context.Context, endpoint string) ([]string, error) {
	conn, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := imagesapi.NewImagesClient(conn).List(inNamespace(ctx), &imagesapi.ListImagesRequest{
		Filters: []string{fmt.Sprintf("labels.%q==%s", pinnedLabel, pinned)},
	})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, plain(err)
	}
	var names []string
	for _, image := range answer.GetImages() {
		names = append(names, image.GetName())
	}
	return names, nil
}

// RemoveImage removes an image with all its names from the runtime at a CRI endpoint, unless containers use it, whether they
// run or not.
func RemoveImage(ctx context.Context, endpoint, name string) error {
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	spec := &runtimeapi.ImageSpec{Image: name}
	images := runtimeapi.NewImageServiceClient(conn)
	answer, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil {
		return fmt.Errorf("image %s: %w", name, plain(err))
	}
	if answer.GetImage() == nil {
		return fmt.Errorf("the container runtime has no image %s", name)
	}
	pod, err := userOf(ctx, conn, answer.GetImage())
	if err != nil {
		return err
	}
	if pod != "" {
		return fmt.Errorf("image %s is in use by pod %s; delete the pod first", name, pod)
	}
	if _, err := images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: answer.GetImage().GetId()}}); err != nil {
		return fmt.Errorf("image %s: %w", name, plain(err))
	}
	return nil
}

// userOf returns a pod with a container of an image, as namespace/name, or "".
func userOf(ctx context.Context, conn grpc.ClientConnInterface, image *runtimeapi.Image) (string, error) {
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return "", fmt.Errorf("list containers: %w", plain(err))
	}
	names := slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests())
	for _, c := range answer.GetContainers() {
		for _, name := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			if slices.Contains(names, name) {
				return c.GetLabels()["io.kubernetes.pod.namespace"] + "/" + c.GetLabels()["io.kubernetes.pod.name"], nil
			}
		}
	}
	return "", nil
}
