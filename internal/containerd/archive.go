// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// archive is an image archive: a tar file with random access to its entries.
type archive struct {
	name    string
	file    *os.File
	entries map[string]span
}

// span is the position of an entry's content in the file.
type span struct{ offset, size int64 }

// maxJSON is the size limit of the JSON documents of an archive, which are read into memory. containerd's limit
// for them is 20 MiB.
const maxJSON = 20 << 20

// compressions are the unsupported compressions of archives, by their magic bytes.
var compressions = []struct{ name, magic string }{
	{"zstd", "\x28\xb5\x2f\xfd"}, {"xz", "\xfd7zXZ\x00"}, {"bzip2", "BZh"},
}

// openArchive opens an image archive, plain or gzipped. A gzipped one is decompressed to an unlinked temporary
// file.
func openArchive(name string) (*archive, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	plain, err := decompressed(file)
	if plain != file {
		file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a := &archive{name: name, file: plain, entries: map[string]span{}}
	if err := a.readEntries(); err != nil {
		a.close()
		return nil, fmt.Errorf("%s is not an image archive: %w", name, err)
	}
	return a, nil
}

func (a *archive) close() { a.file.Close() }

// decompressed returns the file itself, or a temporary file with its decompressed content.
func decompressed(file *os.File) (*os.File, error) {
	head := make([]byte, 6)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	for _, c := range compressions {
		if bytes.HasPrefix(head[:n], []byte(c.magic)) {
			return nil, fmt.Errorf("is compressed with %s; decompress it first", c.name)
		}
	}
	if !bytes.HasPrefix(head[:n], []byte("\x1f\x8b")) {
		return file, nil
	}
	return gunzip(file)
}

func gunzip(file *os.File) (*os.File, error) {
	r, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	plain, err := os.CreateTemp("", "kindred-image-")
	if err != nil {
		return nil, err
	}
	// The unlinked file exists until it is closed.
	if err := os.Remove(plain.Name()); err != nil {
		plain.Close()
		return nil, err
	}
	if _, err := io.Copy(plain, r); err != nil {
		plain.Close()
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	return plain, nil
}

// readEntries records the position of each entry's content: after the tar reader has read a header, the file
// is at the start of the content.
func (a *archive) readEntries() error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	links := map[string]string{}
	r := tar.NewReader(a.file)
	for {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeReg:
			offset, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			if offset+header.Size > info.Size() {
				return fmt.Errorf("it ends in the middle of %s", name)
			}
			a.entries[name] = span{offset: offset, size: header.Size}
		case tar.TypeSymlink: // docker save links repeated layers
			links[name] = path.Join(path.Dir(name), header.Linkname)
		case tar.TypeLink:
			links[name] = path.Clean(header.Linkname)
		}
	}
	for name, target := range links {
		if s, ok := a.entries[target]; ok {
			a.entries[name] = s
		}
	}
	if len(a.entries) == 0 {
		return errors.New("it has no files")
	}
	return nil
}

func (a *archive) has(name string) bool {
	_, ok := a.entries[name]
	return ok
}

// open returns a reader of an entry.
func (a *archive) open(name string) (*io.SectionReader, error) {
	s, ok := a.entries[name]
	if !ok {
		return nil, fmt.Errorf("%s lacks %s", a.name, name)
	}
	return io.NewSectionReader(a.file, s.offset, s.size), nil
}

// read returns the content of an entry that is a JSON document.
func (a *archive) read(name string) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxJSON {
		return nil, fmt.Errorf("%s: %s has %d bytes, more than the %d of any image's description", a.name, name, r.Size(), maxJSON)
	}
	return io.ReadAll(r)
}
