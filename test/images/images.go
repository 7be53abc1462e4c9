// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images builds container images for tests and for the tour of the docs
// out of files of the machine, because tests use no registry. What it writes are
// OCI archives, which "kindred image load" imports.
//
// The same files give the same digests: nothing in an image has a time stamp.
package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BusyboxName is the reference of the image that Busybox writes when it is given no other.
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

// Program writes an OCI archive with an image that holds one static program, which is
// its entrypoint.
func Program(file, binary string, names ...string) error {
	image, err := ProgramImage(binary)
	if err != nil {
		return err
	}
	return Write(file, image, names...)
}

// ProgramImage is an image that holds one static program and nothing else.
func ProgramImage(binary string) (v1.Image, error) {
	content, err := readStatic(binary)
	if err != nil {
		return nil, err
	}
	name := "/" + filepath.Base(binary)
	return build(v1.Config{Entrypoint: []string{name}}, func(l *layer) {
		l.dir("tmp", 0o1777)
		l.file(name[1:], 0o755, content)
	})
}

// build makes an image of one layer.
func build(config v1.Config, fill func(*layer)) (v1.Image, error) {
	l := newLayer()
	fill(l)
	content, err := l.close()
	if err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, packed); err != nil {
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

// layer is a tar file in the making. The first error sticks and is close's.
type layer struct {
	buffer bytes.Buffer
	tar    *tar.Writer
	err    error
}

func newLayer() *layer {
	l := &layer{}
	l.tar = tar.NewWriter(&l.buffer)
	return l
}

func (l *layer) add(h tar.Header, content []byte) {
	if l.err != nil {
		return
	}
	h.Format, h.Size = tar.FormatUSTAR, int64(len(content))
	if l.err = l.tar.WriteHeader(&h); l.err == nil {
		_, l.err = l.tar.Write(content)
	}
}

func (l *layer) dir(name string, mode int64) {
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (l *layer) file(name string, mode int64, content []byte) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content)
}

func (l *layer) link(name, target string) {
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (l *layer) close() ([]byte, error) {
	if l.err == nil {
		l.err = l.tar.Close()
	}
	return l.buffer.Bytes(), l.err
}

// Write writes an image to an OCI archive: an OCI image layout (image-spec,
// image-layout.md) in a tar file, with an index entry for each name.
func Write(file string, image v1.Image, names ...string) error {
	if len(names) == 0 {
		return fmt.Errorf("%s: an image needs a name", file)
	}
	l := newLayer()
	l.file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	root, err := writeBlobs(l, image)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, name := range names {
		entry := *root
		entry.Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
		index.Manifests = append(index.Manifests, entry)
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	l.file("index.json", 0o644, raw)
	content, err := l.close()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, content, 0o644)
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
