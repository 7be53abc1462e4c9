// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"context"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
)

// served is an image in the files that agnhost's fake-registry-server serves: each blob and each manifest below the
// name of the image, and a file for the tag with the digest of its manifest.
type served struct {
	Path, Tag string
	Layer     layer
	Config    v1.Config
}

func (s served) add(ctx context.Context, b *Builder, l *images.Layer) error {
	in, err := b.inputs()
	if err != nil {
		return err
	}
	part, err := b.layer(ctx, in, s.Layer)
	if err != nil {
		return err
	}
	image, err := images.Assemble(nil, s.Config, part)
	if err != nil {
		return err
	}
	if err := s.addBlob(l, part); err != nil {
		return err
	}
	return s.addManifest(l, image)
}

func (s served) addBlob(l *images.Layer, blob v1.Layer) error {
	digest, err := blob.Digest()
	if err != nil {
		return err
	}
	content, err := blob.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	packed, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	l.File(s.file("blobs", digest), 0o644, packed)
	return nil
}

func (s served) addManifest(l *images.Layer, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	raw, err := image.RawManifest()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	l.File(s.file("blobs", manifest.Config.Digest), 0o644, config)
	l.File(s.file("manifests", digest), 0o644, raw)
	l.File(path.Join(s.Path, "manifests", s.Tag), 0o644, []byte(digest.String()+"\n"))
	return nil
}

func (s served) file(kind string, digest v1.Hash) string {
	return path.Join(s.Path, kind, digest.Algorithm, digest.Hex[:2], digest.Hex, "data")
}
