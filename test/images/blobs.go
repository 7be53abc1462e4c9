// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// writeBlobs writes an image's layers, config and manifest, and returns the manifest's descriptor.
func writeBlobs(l *Layer, image v1.Image) (*v1.Descriptor, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, part := range layers {
		if err := writeLayer(l, part); err != nil {
			return nil, err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	name, err := image.ConfigName()
	if err != nil {
		return nil, err
	}
	l.File(blobName(name), 0o644, config)
	root, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return nil, err
	}
	l.File(blobName(root.Digest), 0o644, manifest)
	return root, nil
}

func writeLayer(l *Layer, part v1.Layer) error {
	digest, err := part.Digest()
	if err != nil {
		return err
	}
	size, err := part.Size()
	if err != nil {
		return err
	}
	r, err := part.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	l.Copy(blobName(digest), 0o644, size, r)
	return nil
}
