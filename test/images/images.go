// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images builds container images from files of the machine, for tests and for the tour in
// the documents; tests use no registry. It writes OCI archives, which "kindred image load" imports.
//
// Equal files give equal digests, because images have no time stamps.
package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BusyboxName is the default reference of the image that Busybox writes.
const BusyboxName = "docker.io/library/busybox:latest"

// Busybox writes an OCI archive with a busybox image to file, under the given
// references or BusyboxName. The machine needs a static busybox (Debian's
// package busybox-static).
func Busybox(file string, names ...string) error {
	if len(names) == 0 {
		names = []string{BusyboxName}
	}
	image, err := BusyboxImage()
	if err != nil {
		return err
	}
	return Write(file, image, names...)
}

// Program writes an OCI archive with an image that contains one static program, its entrypoint.
func Program(file, binary string, names ...string) error {
	image, err := ProgramImage(binary, "")
	if err != nil {
		return err
	}
	return Write(file, image, names...)
}

// ProgramImage returns an image with one static program and nothing else. The program runs as the user, by default as root.
func ProgramImage(binary, user string) (v1.Image, error) {
	content, err := readStatic(binary)
	if err != nil {
		return nil, err
	}
	name := "/" + filepath.Base(binary)
	return build(v1.Config{Entrypoint: []string{name}, User: user}, func(l *Layer) {
		l.Dir("tmp", 0o1777)
		l.File(name[1:], 0o755, content)
	})
}

// DataName is the reference of the image that Data returns.
const DataName = "docker.io/library/data:v1"

// Data returns an image with files and no program, for image volumes.
func Data() (v1.Image, error) {
	return build(v1.Config{}, func(l *Layer) {
		l.File("hello", 0o644, []byte("hello\n"))
		l.Dir("conf", 0o755)
		l.File("conf/key", 0o644, []byte("key\n"))
	})
}

// build returns an image with one layer that fits in memory.
func build(config v1.Config, fill func(*Layer)) (v1.Image, error) {
	var buffer bytes.Buffer
	l := newLayer(&buffer)
	fill(l)
	if err := l.close(); err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return Assemble(nil, config, packed)
}

// Assemble returns an image of layers on top of a base, which may be nil. Nothing of the base's
// configuration is inherited.
func Assemble(base v1.Image, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	if base == nil {
		base = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, file)
}

// Write writes an image to an OCI archive: an OCI image layout (image-spec,
// image-layout.md) in a tar file, with an index entry for each name.
func Write(file string, image v1.Image, names ...string) error {
	if len(names) == 0 {
		return fmt.Errorf("%s: an image needs a name", file)
	}
	err := replaceFile(file, func(w io.Writer) error {
		l := newLayer(w)
		writeArchive(l, image, names)
		return l.close()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func writeArchive(l *Layer, image v1.Image, names []string) {
	l.File("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	root, err := writeBlobs(l, image)
	if err != nil {
		l.Fail(err)
		return
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, name := range names {
		entry := *root
		entry.Annotations = map[string]string{refName: name}
		index.Manifests = append(index.Manifests, entry)
	}
	raw, err := json.Marshal(index)
	if err != nil {
		l.Fail(err)
		return
	}
	l.File(indexName, 0o644, raw)
}

// Names in an OCI image layout (image-spec, image-layout.md and annotations.md).
const (
	indexName = "index.json"
	refName   = "org.opencontainers.image.ref.name"
)

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
