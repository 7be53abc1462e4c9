// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
)

// Mirror is a read-only registry that serves archives under the repositories and tags of their
// images' names.
//
// Specs with the pull policy Always need it: ImageVolume's (kitten) and the two of Projected
// PodCertificate that establish mTLS connections (agnhost 2.66.1).
type Mirror struct {
	api      http.Handler
	archives []*images.Archive
}

// NewMirror opens archives; Close closes them.
func NewMirror(archives []Archive) (*Mirror, error) {
	m := &Mirror{}
	m.api = registry.New(registry.WithBlobHandler(m), registry.Logger(log.New(io.Discard, "", 0)))
	for _, a := range archives {
		if err := m.open(a); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", a.Name, err), m.Close())
		}
	}
	return m, nil
}

func (m *Mirror) open(a Archive) error {
	archive, err := images.OpenArchive(a.File)
	if err != nil {
		return err
	}
	m.archives = append(m.archives, archive)
	ref, err := name.ParseReference(a.Name, name.StrictValidation)
	if err != nil {
		return err
	}
	image, found := archive.Images[a.Name]
	if !found {
		return fmt.Errorf("is not in %s", a.File)
	}
	blob := archive.Blob(image.Digest)
	if blob == nil {
		return fmt.Errorf("%s has no manifest %s", a.File, image.Digest)
	}
	target := fmt.Sprintf("http://mirror/v2/%s/manifests/%s", ref.Context().RepositoryStr(), ref.Identifier())
	put, err := http.NewRequest(http.MethodPut, target, blob)
	if err != nil {
		return err
	}
	put.Header.Set("Content-Type", string(image.MediaType))
	answer := &answer{header: http.Header{}}
	if m.api.ServeHTTP(answer, put); answer.code != http.StatusCreated {
		return fmt.Errorf("the registry does not take the manifest: %d %s", answer.code, answer.body.String())
	}
	return nil
}

// answer has the answers for a handler.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// Get returns a blob from the archive that has it. The registry calls it.
func (m *Mirror) Get(_ context.Context, _ string, digest v1.Hash) (io.ReadCloser, error) {
	for _, archive := range m.archives {
		if blob := archive.Blob(digest); blob != nil {
			return io.NopCloser(blob), nil
		}
	}
	return nil, registry.ErrNotFound
}

// Stat returns the size of a blob.
func (m *Mirror) Stat(_ context.Context, _ string, digest v1.Hash) (int64, error) {
	for _, archive := range m.archives {
		if blob := archive.Blob(digest); blob != nil {
			return blob.Size(), nil
		}
	}
	return 0, registry.ErrNotFound
}

// ServeHTTP serves the read requests of the OCI distribution-spec.
func (m *Mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "this registry is for pulling", http.StatusMethodNotAllowed)
		return
	}
	m.api.ServeHTTP(w, r)
}

// Serve serves until the context ends.
func (m *Mirror) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: m, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close closes the archives.
func (m *Mirror) Close() error {
	var errs []error
	for _, archive := range m.archives {
		errs = append(errs, archive.Close())
	}
	return errors.Join(errs...)
}

// WriteHosts configures a containerd to pull Registry's images from a mirror. certs is the
// directory in containerd's config_path (docs/hosts.md of containerd); Kindred's is
// containerd/certs.d in the data directory. containerd reads it at each pull.
func WriteHosts(certs, mirror string) error {
	folder := filepath.Join(certs, Registry)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	content := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "https://"+Registry, mirror)
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(content), 0o644)
}
