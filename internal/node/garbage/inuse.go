// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// removable lists the runtime's images, records which are in use, and returns those that may be removed.
func (m *Images) removable(ctx context.Context) ([]Image, error) {
	listed, err := m.options.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	pinned, err := m.pinned(ctx)
	if err != nil {
		return nil, err
	}
	used, err := m.used(ctx)
	if err != nil {
		return nil, err
	}
	images := imagesOf(listed, pinned, used)
	if err := m.usage.observe(images); err != nil {
		return nil, fmt.Errorf("record the use of images: %w", err)
	}
	return m.options.Policy.removable(images, m.options.Clock.Now()), nil
}

// names is a set of IDs, tags and digests of images.
type names map[string]bool

func (n names) add(names ...string) {
	for _, name := range names {
		if name != "" {
			n[name] = true
		}
	}
}

// haveAny reports whether any of an image's names is in the set.
func (n names) haveAny(of []string) bool {
	return slices.ContainsFunc(of, func(name string) bool { return n[name] })
}

// imagesOf converts images of CRI. Their times are not known yet.
func imagesOf(listed []*runtimeapi.Image, pinned, used names) []Image {
	images := make([]Image, len(listed))
	for i, image := range listed {
		all := slices.Concat([]string{image.Id}, image.RepoTags, image.RepoDigests)
		images[i] = Image{ID: image.Id, Names: all, Size: image.Size, Pinned: image.Pinned || pinned.haveAny(all), InUse: used.haveAny(all)}
	}
	return images
}

// pinned returns the images that must stay and that CRI does not report as pinned: containerd 1.6 reports none. One of
// them is the image of sandboxes.
func (m *Images) pinned(ctx context.Context) (names, error) {
	all := names{}
	if m.options.Pinned != nil {
		list, err := m.options.Pinned(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the pinned images: %w", err)
		}
		all.add(list...)
	}
	response, err := m.options.Runtime.Status(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("get the runtime's status: %w", err)
	}
	all.add(sandboxImage(response.GetInfo()))
	return all, nil
}

// sandboxImage returns the image of sandboxes, given the runtime's verbose status, or "": containerd 1.x shows it in its
// configuration, and newer runtimes pin it.
func sandboxImage(info map[string]string) string {
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil {
		return ""
	}
	return config.SandboxImage
}

// used returns the images that containers have, whether they run or not, and those that pods of the node need.
func (m *Images) used(ctx context.Context) (names, error) {
	containers, err := m.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	all := m.wanted()
	for _, c := range containers {
		all.add(c.ImageId, c.ImageRef, c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage())
		if !m.options.Volumes {
			continue
		}
		response, err := m.options.Runtime.ContainerStatus(ctx, c.Id, false)
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of container %s: %w", c.Id, err)
		}
		for _, mount := range response.GetStatus().GetMounts() {
			all.add(mount.GetImage().GetImage(), mount.GetImage().GetUserSpecifiedImage())
		}
	}
	return all, nil
}

// wanted returns the images that pods of the node need.
func (m *Images) wanted() names {
	all := names{}
	all.add(m.options.Wanted()...)
	return all
}
