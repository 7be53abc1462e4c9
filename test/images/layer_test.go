// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// headers returns the headers of a layer, in order.
func headers(t *testing.T, l v1.Layer) []*tar.Header {
	t.Helper()
	content, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var all []*tar.Header
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

func TestLayerKeepsModesOwnersAndOneOfEachDirectory(t *testing.T) {
	var other bytes.Buffer
	w := tar.NewWriter(&other)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: "./bin/mail", Mode: 0o2755, Gid: 8, Uname: "root"},
		{Typeflag: tar.TypeLink, Name: "./bin/post", Linkname: "./bin/mail"},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/mail", Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := LayerFile(filepath.Join(t.TempDir(), "layer.tar.gz"), func(l *Layer) {
		l.Dir("bin", 0o755)
		l.File("bin/su", 0o4755, []byte("program"))
		l.Tar(&other, func(name string) bool { return !strings.HasPrefix(name, "usr/") })
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name string
		mode int64
		gid  int
		link string
	}{{"bin/", 0o755, 0, ""}, {"bin/su", 0o4755, 0, ""}, {"bin/mail", 0o2755, 8, ""}, {"bin/post", 0, 0, "bin/mail"}}
	got := headers(t, l)
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i, h := range got {
		if h.Name != want[i].name || h.Mode != want[i].mode || h.Gid != want[i].gid || h.Linkname != want[i].link || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("entry %+v, want %+v", h, want[i])
		}
	}
}

func TestLayerFailsAsAWhole(t *testing.T) {
	for name, fill := range map[string]func(*Layer){
		"failed by the caller": func(l *Layer) { l.Fail(errors.New("no")) },
		"content is too short": func(l *Layer) { l.Copy("file", 0o644, 9, strings.NewReader("content")) },
		"content is too long":  func(l *Layer) { l.Copy("file", 0o644, 1, strings.NewReader("content")) },
		"not a tar file":       func(l *Layer) { l.Tar(strings.NewReader("content"), func(string) bool { return true }) },
		"an error, then files": func(l *Layer) { l.Fail(errors.New("no")); l.File("file", 0o644, nil) },
	} {
		dir := t.TempDir()
		if _, err := LayerFile(filepath.Join(dir, "layer.tar.gz"), fill); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: files are left: %v (%v)", name, left, err)
		}
	}
}

func TestArchiveHasWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	l, err := LayerFile(filepath.Join(dir, "layer.tar.gz"), func(l *Layer) { l.File("file", 0o644, []byte("content")) })
	if err != nil {
		t.Fatal(err)
	}
	image, err := Assemble(nil, v1.Config{User: "7"}, l)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "image.tar")
	if err := Write(file, image, "app:1", "app:2"); err != nil {
		t.Fatal(err)
	}
	a, err := OpenArchive(file)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app:1", "app:2"} {
		if got := a.Images[name].Digest; got != digest {
			t.Errorf("%s is %s, want %s", name, got, digest)
		}
	}
	raw, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(a.Blob(digest)); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("manifest %s (%v)", got, err)
	}
	if a.Blob(v1.Hash{Algorithm: "sha256", Hex: "0"}) != nil {
		t.Error("an unknown digest has a blob")
	}
}
