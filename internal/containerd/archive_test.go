// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc"

	"github.com/kindred-project/kindred/test/images"
)

// write writes content to a new file.
func write(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := pauseImage(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	return image
}

func ociArchive(t *testing.T, image v1.Image, names ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "oci.tar")
	if err := images.Write(file, image, names...); err != nil {
		t.Fatal(err)
	}
	return read(t, file)
}

func dockerArchive(t *testing.T, image v1.Image, names ...string) []byte {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for _, n := range names {
		ref, err := name.ParseReference(n)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = image
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func foreign(t *testing.T, image v1.Image) v1.Image {
	t.Helper()
	return withConfig(t, image, func(c *v1.ConfigFile) { c.Architecture = "s390x" })
}

func withConfig(t *testing.T, image v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	change(config)
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestArchivesAreRead(t *testing.T) {
	image := testImage(t)
	one := []string{"docker.io/library/app:latest"}
	tests := map[string]struct {
		content []byte
		want    []string
	}{
		"OCI":            {ociArchive(t, image, "app:latest"), one},
		"OCI, gzipped":   {gzipped(t, ociArchive(t, image, "app:latest")), one},
		"OCI, two names": {ociArchive(t, image, "example.com/a/b:v1", "localhost:5000/c"), []string{"example.com/a/b:v1", "localhost:5000/c:latest"}},
		"docker":         {dockerArchive(t, image, "app"), one},
		"docker, gzip":   {gzipped(t, dockerArchive(t, image, "app:latest")), one},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			a, err := openArchive(write(t, tt.content))
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			contents, err := a.images()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range contents {
				got = append(got, c.names...)
				assertWhole(t, c)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// assertWhole checks that each blob matches its descriptor and comes before the blobs that refer to it, and that
// no referenced blob is missing.
func assertWhole(t *testing.T, c imageContent) {
	t.Helper()
	seen := map[v1.Hash]bool{}
	for _, b := range c.blobs {
		r, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		digest, size, err := v1.SHA256(r)
		if err != nil {
			t.Fatal(err)
		}
		if digest != b.Digest || size != b.Size {
			t.Errorf("blob %s of %d bytes has digest %s and %d bytes", b.Digest, b.Size, digest, size)
		}
		for _, ref := range b.refs {
			if !seen[ref] {
				t.Errorf("%s refers to %s, which does not come before it", b.Digest, ref)
			}
		}
		seen[b.Digest] = true
	}
	if !seen[c.root.Digest] || !seen[c.manifest.Config.Digest] || len(c.manifest.Layers) != len(c.config.RootFS.DiffIDs) {
		t.Errorf("root, config or layers are missing in %+v", c)
	}
}

func cutAt(content []byte, mark string) []byte {
	before, _, _ := bytes.Cut(content, []byte(mark))
	return before
}

func TestInvalidArchivesAreRefused(t *testing.T) {
	image := testImage(t)
	tests := map[string]struct {
		content []byte
		want    string
	}{
		"empty":                                 {nil, "it has no files"},
		"text":                                  {[]byte(strings.Repeat("no image\n", 100)), "not an image archive"},
		"truncated":                             {cutAt(ociArchive(t, image, "app:v1"), `"/pause"`), "is not an image archive: it ends in the middle of"},
		"zstd":                                  {[]byte("\x28\xb5\x2f\xfd\x00\x00\x00"), "is compressed with zstd; decompress it first"},
		"broken gzip":                           {[]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), "unexpected EOF"},
		"other tar":                             {tarOf(t, map[string]string{"a.txt": "a"}), "neither an OCI nor a docker image archive: it has no index.json and no manifest.json"},
		"no name":                               {ociArchive(t, image, "latest"), "an image has no name"},
		"bad name":                              {ociArchive(t, image, "App:v1"), "is not an image reference"},
		"empty index":                           {tarOf(t, map[string]string{"index.json": "{}"}), "has no image"},
		"no JSON":                               {tarOf(t, map[string]string{"index.json": "{"}), "index.json"},
		"empty list":                            {tarOf(t, map[string]string{"manifest.json": "[]"}), "has no image"},
		"missing config":                        {tarOf(t, map[string]string{"manifest.json": `[{"Config":"c.json","RepoTags":["a"],"Layers":[]}]`}), "lacks c.json"},
		"image without a name, saved by its ID": {tarOf(t, map[string]string{"manifest.json": `[{"Config":"c.json"}]`}), "save it by its name"},
		"other platform":                        {ociArchive(t, foreign(t, image), "app:v1"), "is not for this machine's platform"},
		"docker, other":                         {dockerArchive(t, foreign(t, image), "app:v1"), "is for linux/s390x"},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			file := write(t, tt.content)
			// The files are read before the endpoint is used.
			_, err := ImportImages(t.Context(), "unix:///nowhere", file)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want an error with the file's name and %q", err, tt.want)
			}
		})
	}
}

// TestOtherRuntimeIsNamed: on a runtime that is not containerd, the error has the command that loads the archive. skopeo
// refuses a format by the name of the other.
func TestOtherRuntimeIsNamed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer() // without containerd's services
	go server.Serve(listener)
	defer server.Stop()
	image := testImage(t)
	for format, content := range map[string][]byte{
		"oci-archive": ociArchive(t, image, "app:v1"), "docker-archive": dockerArchive(t, image, "app:v1"),
	} {
		file := write(t, content)
		_, err := ImportImages(t.Context(), "unix://"+socket, file)
		want := "is not containerd; load images with its own tools, CRI-O's with: skopeo copy " + format + ":" + file + " containers-storage:docker.io/library/app:v1"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
	}
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08"))
	f.Add([]byte("index.json"))
	f.Fuzz(func(t *testing.T, content []byte) {
		a, err := openArchive(write(t, content))
		if err != nil {
			return
		}
		defer a.close()
		contents, err := a.images()
		if err == nil && len(contents) == 0 {
			t.Error("neither images nor an error")
		}
	})
}
