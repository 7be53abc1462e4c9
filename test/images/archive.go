// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Archive is an OCI archive that Write wrote, open for reading.
type Archive struct {
	// Images are the descriptors of its images, by name.
	Images map[string]v1.Descriptor

	file    *os.File
	entries map[string]*io.SectionReader
}

// OpenArchive opens an archive and reads only its index.
func OpenArchive(name string) (*Archive, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	a := &Archive{Images: map[string]v1.Descriptor{}, file: file, entries: map[string]*io.SectionReader{}}
	if err := errors.Join(a.readEntries(), a.readIndex()); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// Close also invalidates the readers of its blobs.
func (a *Archive) Close() error { return a.file.Close() }

// Blob returns a reader of the blob with a digest, or nil. Concurrent readers need one each.
func (a *Archive) Blob(digest v1.Hash) *io.SectionReader {
	entry := a.entries[blobName(digest)]
	if entry == nil {
		return nil
	}
	return io.NewSectionReader(entry, 0, entry.Size())
}

// readEntries records the offset of each file: after each header, the tar reader leaves the file at
// the start of the content.
func (a *Archive) readEntries() error {
	for r := tar.NewReader(a.file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		offset, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		a.entries[header.Name] = io.NewSectionReader(a.file, offset, header.Size)
	}
}

func (a *Archive) readIndex() error {
	entry := a.entries[indexName]
	if entry == nil {
		return errors.New("is no OCI archive: it has no " + indexName)
	}
	var index v1.IndexManifest
	if err := json.NewDecoder(entry).Decode(&index); err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	for _, image := range index.Manifests {
		a.Images[image.Annotations[refName]] = image
	}
	return nil
}
