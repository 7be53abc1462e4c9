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

// Layer is a layer in the making, a tar file. Names are paths from the root, without the
// slash in front; modes are chmod's, so that 0o4755 is a setuid program. All belongs to
// root and nothing has a time stamp, but what Tar takes over keeps its owner. The first
// error is kept and returned with the layer.
type Layer struct {
	tar  *tar.Writer
	dirs map[string]bool
	err  error
}

func newLayer(w io.Writer) *Layer {
	return &Layer{tar: tar.NewWriter(w), dirs: map[string]bool{}}
}

// LayerFile writes a compressed layer to a file. The layer that is returned is read from
// there whenever it is needed, so it may be larger than the memory.
func LayerFile(file string, fill func(*Layer)) (v1.Layer, error) {
	err := replaceFile(file, func(w io.Writer) error {
		// A layer is written once and read a few times on the same machine: speed
		// is worth more than size.
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

// OpenLayer is a layer that LayerFile wrote.
func OpenLayer(file string) (v1.Layer, error) {
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
}

// replaceFile writes a file that is there whole or not at all.
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

// Dir adds a directory, once.
func (l *Layer) Dir(name string, mode int64) {
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

// File adds a file with the given content.
func (l *Layer) File(name string, mode int64, content []byte) {
	l.Copy(name, mode, int64(len(content)), bytes.NewReader(content))
}

// Copy adds a file whose content is read from r, which must have that size.
func (l *Layer) Copy(name string, mode, size int64, r io.Reader) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}, r)
}

// Link adds a symbolic link.
func (l *Layer) Link(name, target string) {
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

// Tar adds the entries of another tar file that keep approves of.
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

// rooted is a name as Layer has it: dpkg-deb's are "./bin/sh", the root's is "./".
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

// Fail ends the layer with an error, unless there was one before.
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
