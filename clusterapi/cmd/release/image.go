// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// writeImage writes an archive with an image of static programs, by their names in it. manager is its entrypoint.
func writeImage(file, tag string, programs map[string]string) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	content, err := layer(programs)
	if err != nil {
		return err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, packed)
	if err != nil {
		return err
	}
	base, err := image.ConfigFile()
	if err != nil {
		return err
	}
	described := base.DeepCopy()
	described.OS, described.Architecture = "linux", runtime.GOARCH
	described.Config = v1.Config{Entrypoint: []string{"/manager"}}
	if image, err = mutate.ConfigFile(image, described); err != nil {
		return err
	}
	return tarball.WriteToFile(file, reference, image)
}

// layer returns a layer of programs, without times, so that equal programs make an equal image.
func layer(programs map[string]string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, path := range slices.Sorted(maps.Keys(programs)) {
		content, err := os.ReadFile(programs[path])
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
	}
	return out.Bytes(), w.Close()
}
