// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func needBusybox(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("busybox")
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI must have busybox: apt-get install busybox-static")
	}
	t.Skip("needs busybox: apt-get install busybox-static")
}

// entries reads the files of a tar file.
func entries(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
		if header.Linkname != "" {
			files[header.Name] = []byte("-> " + header.Linkname)
		}
	}
}

func TestBusybox(t *testing.T) {
	needBusybox(t)
	one, two := filepath.Join(t.TempDir(), "a.tar"), filepath.Join(t.TempDir(), "b.tar")
	if err := Busybox(one); err != nil {
		t.Fatal(err)
	}
	if err := Busybox(two); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two archives of one busybox differ")
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(entries(t, bytes.NewReader(a))["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != BusyboxName {
		t.Errorf("index %+v", index)
	}
}

func TestBusyboxHasWhatTestsRelyOn(t *testing.T) {
	needBusybox(t)
	image, err := BusyboxImage()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := entries(t, content)
	for _, applet := range []string{"sh", "sleep", "cat", "wget", "httpd", "nc", "tar"} {
		if link := string(files["bin/"+applet]); link != "-> busybox" {
			t.Errorf("bin/%s is %q", applet, link)
		}
	}
	if !strings.Contains(string(files["etc/passwd"]), "nobody:x:65534") {
		t.Errorf("etc/passwd is %q", files["etc/passwd"])
	}
}

func TestOnlyStaticProgramsAreTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar")
	if err := Program(file, "images_test.go", "app:v1"); err == nil || !strings.Contains(err.Error(), "not a Linux program") {
		t.Errorf("an image of a text file: %v", err)
	}
	if err := Program(file, "/bin/ls", "app:v1"); err == nil || !strings.Contains(err.Error(), "not static") {
		t.Errorf("an image of a dynamic program: %v", err)
	}
}
