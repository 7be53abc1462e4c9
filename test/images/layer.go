// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer writes a layer, which is a tar file. Names are paths from the root without the leading
// slash; modes are as in chmod, so that 0o4755 is a setuid program. All files belong to root and
// have no time stamp, but Tar keeps the owners of its entries. The first error is kept and returned
// with the layer.
type Layer struct {
	tar  *tar.Writer
	dirs map[string]bool
	err  error
}

func newLayer(w io.Writer) *Layer {
	return &Layer{tar: tar.NewWriter(w), dirs: map[string]bool{}}
}

// LayerFile writes a compressed layer to a file. The returned layer is read from that file when it
// is needed, so it may be larger than the memory.
func LayerFile(file string, fill func(*Layer)) (v1.Layer, error) {
	err := replaceFile(file, func(w io.Writer) error {
		// A layer is written once and read a few times on the same machine, so speed matters more
		// than size.
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		l := newLayer(packed)
		fill(l)
		return errors.Join(l.close(), packed.Close())
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return OpenLayer(file)
}

// OpenLayer returns a layer that LayerFile wrote.
func OpenLayer(file string) (v1.Layer, error) {
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
}

// replaceFile writes a file atomically.
func replaceFile(file string, write func(io.Writer) error) error {
	draft, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	w := bufio.NewWriterSize(draft, 1<<20)
	err = errors.Join(write(w), w.Flush(), draft.Chmod(0o644), draft.Close())
	if err != nil {
		return err
	}
	return os.Rename(draft.Name(), file)
}

// Dir adds a directory, at most once.
func (l *Layer) Dir(name string, mode int64) {
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

// File adds a file with the given content.
func (l *Layer) File(name string, mode int64, content []byte) {
	l.Copy(name, mode, int64(len(content)), bytes.NewReader(content))
}

// Copy adds a file with the content of r, which must have the given size.
func (l *Layer) Copy(name string, mode, size int64, r io.Reader) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}, r)
}

// Link adds a symbolic link.
func (l *Layer) Link(name, target string) {
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

// Tar adds the entries of another tar file for which keep returns true.
func (l *Layer) Tar(r io.Reader, keep func(name string) bool) {
	for tr := tar.NewReader(r); l.err == nil; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.Fail(err)
			return
		}
		name := rooted(h.Name)
		if name == "" || !keep(name) {
			continue
		}
		if h.Typeflag == tar.TypeDir {
			name += "/"
		}
		if h.Typeflag == tar.TypeLink {
			h.Linkname = rooted(h.Linkname)
		}
		l.add(tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, Size: h.Size}, tr)
	}
}

// rooted returns a name in Layer's form: dpkg-deb's are "./bin/sh", and "./" for the root.
func rooted(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (l *Layer) add(h tar.Header, content io.Reader) {
	if l.err != nil || h.Typeflag == tar.TypeDir && l.dirs[h.Name] {
		return
	}
	if h.Typeflag == tar.TypeDir {
		l.dirs[h.Name] = true
	}
	if err := l.tar.WriteHeader(&h); err != nil {
		l.Fail(fmt.Errorf("%s: %w", h.Name, err))
		return
	}
	if h.Typeflag != tar.TypeReg {
		return
	}
	n, err := io.Copy(l.tar, content)
	if err == nil && n < h.Size {
		err = fmt.Errorf("has %d bytes, not %d", n, h.Size)
	}
	if err != nil {
		l.Fail(fmt.Errorf("%s: %w", h.Name, err))
	}
}

// Fail fails the layer, unless it has failed before.
func (l *Layer) Fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *Layer) close() error {
	if l.err != nil {
		return l.err
	}
	return l.tar.Close()
}
