// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageContent is an image as containerd stores it: blobs, one of which is the root, and names.
type imageContent struct {
	archive *archive
	names   []string
	root    v1.Descriptor
	// blobs are ordered: each one comes before the blobs that refer to it.
	blobs []blob
	// manifest is the manifest for this machine's platform, which is unpacked.
	manifest *v1.Manifest
	config   *v1.ConfigFile
}

type blob struct {
	v1.Descriptor
	open func() (io.Reader, error)
	// refs are the digests of the blobs that this one refers to, each with a name.
	refs map[string]v1.Hash
}

// The annotations with an image's name in an index.json. containerd's, which docker save and nerdctl write as
// well, is a full reference. OCI's may be only a tag.
const (
	containerdName = "io.containerd.image.name"
	ociName        = "org.opencontainers.image.ref.name"
)

// format returns the format of the archive as skopeo(1) names it.
func (a *archive) format() string {
	if a.has("index.json") {
		return "oci-archive"
	}
	return "docker-archive"
}

// images returns the images in an archive.
func (a *archive) images() ([]imageContent, error) {
	switch {
	case a.has("index.json"):
		return a.ociImages()
	case a.has("manifest.json"):
		return a.dockerImages()
	}
	return nil, fmt.Errorf("%s is neither an OCI nor a docker image archive: it has no index.json and no manifest.json", a.name)
}

// ociImages reads an OCI image layout (image-spec, image-layout.md).
func (a *archive) ociImages() ([]imageContent, error) {
	raw, err := a.read("index.json")
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: index.json: %w", a.name, err)
	}
	var images []imageContent
	for _, d := range index.Manifests {
		name, err := imageName(d.Annotations)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		c := imageContent{names: []string{name}, root: d}
		if err := a.collect(&c, d); err != nil {
			return nil, err
		}
		if c.manifest == nil {
			return nil, fmt.Errorf("%s: image %s is not for this machine's platform, linux/%s", a.name, name, runtime.GOARCH)
		}
		images = append(images, c)
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s has no image: its index is empty", a.name)
	}
	return images, nil
}

func imageName(annotations map[string]string) (string, error) {
	if name := annotations[containerdName]; name != "" {
		return normalize(name)
	}
	name := annotations[ociName]
	if !strings.ContainsAny(name, ":/") {
		return "", fmt.Errorf("an image has no name: its index gives %q as %s, and not a reference such as example.com/app:v1", name, ociName)
	}
	return normalize(name)
}

// normalize returns the full reference that CRI uses: docker.io/library/busybox:latest for "busybox".
func normalize(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("%q is not an image reference: %w", name, err)
	}
	return ref.String(), nil
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// collect adds the blob of a descriptor and, before it, the blobs that it refers to. It skips blobs that the
// archive lacks: of a multi-platform image, an archive often has only one platform.
func (a *archive) collect(c *imageContent, d v1.Descriptor) error {
	raw, err := a.read(blobPath(d.Digest))
	if err != nil {
		return err
	}
	b := blob{Descriptor: d, open: readerOf(raw)}
	switch {
	case d.MediaType.IsIndex():
		b.refs, err = a.collectIndex(c, raw)
	case d.MediaType.IsImage():
		b.refs, err = a.collectImage(c, raw)
	default:
		err = fmt.Errorf("media type %q is not that of an image", d.MediaType)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", a.name, d.Digest, err)
	}
	c.blobs = append(c.blobs, b)
	return nil
}

func (a *archive) collectIndex(c *imageContent, raw []byte) (map[string]v1.Hash, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	refs := map[string]v1.Hash{}
	for i, d := range index.Manifests {
		if !a.has(blobPath(d.Digest)) {
			continue
		}
		refs["m."+strconv.Itoa(i)] = d.Digest
		if err := a.collect(c, d); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

func (a *archive) collectImage(c *imageContent, raw []byte) (map[string]v1.Hash, error) {
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	config, err := a.readConfig(manifest)
	if err != nil {
		return nil, err
	}
	wanted := c.manifest == nil && config.OS == "linux" && config.Architecture == runtime.GOARCH
	if wanted {
		c.manifest, c.config = manifest, config
	}
	for _, d := range append([]v1.Descriptor{manifest.Config}, manifest.Layers...) {
		name := blobPath(d.Digest)
		if !a.has(name) && !wanted {
			continue
		}
		if !a.has(name) {
			return nil, fmt.Errorf("the archive lacks %s", name)
		}
		c.blobs = append(c.blobs, blob{Descriptor: d, open: func() (io.Reader, error) { return a.open(name) }})
	}
	return manifestRefs(manifest), nil
}

// readConfig returns an empty config if the manifest describes a signature or an attestation, and not a
// container image.
func (a *archive) readConfig(manifest *v1.Manifest) (*v1.ConfigFile, error) {
	raw, err := a.read(blobPath(manifest.Config.Digest))
	if err != nil {
		return nil, err
	}
	if !manifest.Config.MediaType.IsConfig() {
		return &v1.ConfigFile{}, nil
	}
	return v1.ParseConfigFile(bytes.NewReader(raw))
}

func manifestRefs(m *v1.Manifest) map[string]v1.Hash {
	refs := map[string]v1.Hash{"config": m.Config.Digest}
	for i, l := range m.Layers {
		refs["l."+strconv.Itoa(i)] = l.Digest
	}
	return refs
}

func readerOf(raw []byte) func() (io.Reader, error) {
	return func() (io.Reader, error) { return bytes.NewReader(raw), nil }
}

// dockerImages reads the format of docker save: a list of images, each with a config and layers, which are tar
// files, plain or gzipped. It builds a manifest for each.
func (a *archive) dockerImages() ([]imageContent, error) {
	raw, err := a.read("manifest.json")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: manifest.json: %w", a.name, err)
	}
	var images []imageContent
	for _, item := range list {
		c, err := a.dockerImage(item.Config, item.RepoTags, item.Layers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		images = append(images, c)
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s has no image: its manifest.json is empty", a.name)
	}
	return images, nil
}

func (a *archive) dockerImage(config string, tags, layers []string) (imageContent, error) {
	var c imageContent
	if len(tags) == 0 {
		return c, errors.New("an image has no name: save it by its name, not by its ID")
	}
	for _, tag := range tags {
		name, err := normalize(tag)
		if err != nil {
			return c, err
		}
		c.names = append(c.names, name)
	}
	raw, err := a.read(config)
	if err != nil {
		return c, err
	}
	if c.config, err = v1.ParseConfigFile(bytes.NewReader(raw)); err != nil {
		return c, fmt.Errorf("%s: %w", config, err)
	}
	if c.config.OS != "linux" || c.config.Architecture != runtime.GOARCH {
		return c, fmt.Errorf("image %s is for %s/%s, this machine's platform is linux/%s",
			c.names[0], c.config.OS, c.config.Architecture, runtime.GOARCH)
	}
	c.manifest = &v1.Manifest{SchemaVersion: 2, MediaType: types.DockerManifestSchema2}
	if c.manifest.Config, err = a.addBlob(&c, config, types.DockerConfigJSON); err != nil {
		return c, err
	}
	for _, layer := range layers {
		mediaType, err := a.layerType(layer)
		if err != nil {
			return c, err
		}
		d, err := a.addBlob(&c, layer, mediaType)
		if err != nil {
			return c, err
		}
		c.manifest.Layers = append(c.manifest.Layers, d)
	}
	return c, c.addManifest()
}

// addBlob adds an entry of the archive and computes its digest.
func (a *archive) addBlob(c *imageContent, name string, mediaType types.MediaType) (v1.Descriptor, error) {
	r, err := a.open(name)
	if err != nil {
		return v1.Descriptor{}, err
	}
	digest, size, err := v1.SHA256(r)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d := v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}
	c.blobs = append(c.blobs, blob{Descriptor: d, open: func() (io.Reader, error) { return a.open(name) }})
	return d, nil
}

func (a *archive) layerType(name string) (types.MediaType, error) {
	r, err := a.open(name)
	if err != nil {
		return "", err
	}
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err == nil && string(head) == "\x1f\x8b" {
		return types.DockerLayer, nil
	}
	return types.DockerUncompressedLayer, nil
}

// addManifest adds c.manifest as the root.
func (c *imageContent) addManifest() error {
	raw, err := json.Marshal(c.manifest)
	if err != nil {
		return err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	c.root = v1.Descriptor{MediaType: c.manifest.MediaType, Digest: digest, Size: size}
	c.blobs = append(c.blobs, blob{Descriptor: c.root, open: readerOf(raw), refs: manifestRefs(c.manifest)})
	return nil
}

// contentOf returns the content of an image that was built in memory.
func contentOf(name string, image v1.Image) (imageContent, error) {
	c := imageContent{names: []string{name}}
	var err error
	if c.manifest, err = image.Manifest(); err != nil {
		return c, err
	}
	if c.config, err = image.ConfigFile(); err != nil {
		return c, err
	}
	raw, err := image.RawConfigFile()
	if err != nil {
		return c, err
	}
	c.blobs = append(c.blobs, blob{Descriptor: c.manifest.Config, open: readerOf(raw)})
	layers, err := image.Layers()
	if err != nil {
		return c, err
	}
	for _, layer := range layers {
		d, err := partial.Descriptor(layer)
		if err != nil {
			return c, err
		}
		c.blobs = append(c.blobs, blob{Descriptor: *d, open: func() (io.Reader, error) { return layer.Compressed() }})
	}
	return c, c.addManifest()
}
