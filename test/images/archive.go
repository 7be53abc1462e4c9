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
	// Images are what it holds, by name.
	Images map[string]v1.Descriptor

	file    *os.File
	entries map[string]*io.SectionReader
}

// OpenArchive opens an archive. Nothing of it is read but what names the images.
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

// Close ends the readers of its blobs, too.
func (a *Archive) Close() error { return a.file.Close() }

// Blob is the blob of a digest, or nil. What reads it at once with another has to ask
// for its own.
func (a *Archive) Blob(digest v1.Hash) *io.SectionReader {
	entry := a.entries[blobName(digest)]
	if entry == nil {
		return nil
	}
	return io.NewSectionReader(entry, 0, entry.Size())
}

// readEntries notes where each file is: the tar reader, which reads headers alone,
// leaves the file at the content's start.
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
