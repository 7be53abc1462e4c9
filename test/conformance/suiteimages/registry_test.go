// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
)

// TestServed follows a served image as a client of the registry does: from its tag to its layers.
func TestServed(t *testing.T) {
	b := &Builder{Dir: t.TempDir(), Module: ".."}
	if _, err := b.Build(t.Context(), pauseName); err != nil {
		t.Fatal(err)
	}
	s := served{"var/registry/pause", "testing", pauseLayer, pauseConfig}
	l, err := images.LayerFile(filepath.Join(t.TempDir(), "layer"), func(l *images.Layer) {
		if err := s.add(t.Context(), b, l); err != nil {
			l.Fail(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	files := filesOf(t, l)

	get := func(kind string, digest v1.Hash) []byte {
		content := files["var/registry/pause/"+kind+"/sha256/"+digest.Hex[:2]+"/"+digest.Hex+"/data"]
		if got, _, err := v1.SHA256(bytes.NewReader(content)); err != nil || got != digest {
			t.Fatalf("%s %s has the digest %s, %v", kind, digest, got, err)
		}
		return content
	}
	digest, err := v1.NewHash(strings.TrimSpace(string(files["var/registry/pause/manifests/testing"])))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(get("manifests", digest)))
	if err != nil {
		t.Fatal(err)
	}
	get("blobs", manifest.Config.Digest)
	if len(manifest.Layers) != 1 {
		t.Fatalf("layers %v", manifest.Layers)
	}
	get("blobs", manifest.Layers[0].Digest)
}

func filesOf(t *testing.T, l v1.Layer) map[string][]byte {
	t.Helper()
	content, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := map[string][]byte{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}
