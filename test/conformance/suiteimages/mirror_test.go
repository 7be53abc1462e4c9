// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestMirror(t *testing.T) {
	b := Builder{Dir: t.TempDir(), Module: ".."}
	built, err := b.Build(t.Context(), pauseName)
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := NewMirror(built)
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- mirror.Serve(ctx, listener) }()

	ref, err := name.ParseReference(listener.Addr().String()+"/pause:3.10.2", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Errorf("the pulled image is incomplete: %v", err)
	}
	if _, err := remote.Image(ref.Context().Tag("none")); err == nil {
		t.Error("an unknown tag is found")
	}
	if err := remote.Write(ref.Context().Tag("other"), image); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusMethodNotAllowed)) {
		t.Errorf("pushing: %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestMirrorOfNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewMirror([]Archive{{Name: pauseName, File: file}}); err == nil || !strings.Contains(err.Error(), "is no OCI archive") {
		t.Errorf("error %v", err)
	}
}

func TestWriteHosts(t *testing.T) {
	certs := t.TempDir()
	if err := WriteHosts(certs, "http://127.0.0.1:5000"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(certs, "registry.k8s.io", "hosts.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`server = "https://registry.k8s.io"`, `[host."http://127.0.0.1:5000"]`, `"pull"`, `"resolve"`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("no %s in\n%s", want, content)
		}
	}
}
