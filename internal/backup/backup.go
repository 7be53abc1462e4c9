// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the format of backups: a gzipped tar archive with a description, the keys of the cluster, and a snapshot of its
// store. A backup has everything that a cluster needs but the data of volumes, and as it has the cluster's keys, anyone who can read it
// is its administrator.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// SnapshotPath is where the API server serves the store as a whole. It has all Secrets: only who may get this path, such as
// cluster-admin, can read it.
const SnapshotPath = "/kindred/snapshot"

// The entries of an archive, in this order.
const (
	descriptionEntry = "backup.json"
	keysPrefix       = "keys/"
	storeEntry       = "etcd.db"
)

// format is the version of the format that this package writes and reads.
const format = 1

// private is the mode of files with secrets.
const private = 0o600

// maxEntry limits the size of the entries that are read into memory.
const maxEntry = 1 << 20

// Description says what a backup is of.
type Description struct {
	Format int `json:"format"`
	// Version is that of the program that wrote the backup, and Time is when it did.
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	// Authority is the hash of the cluster's authority, and ServiceCIDR are the ranges of Services.
	Authority string `json:"authority"`
}

// Backup is the content of a backup.
type Backup struct {
	Description
	// Keys are the files of the cluster's keys by name.
	Keys map[string][]byte
	// Store is the path of a file with the snapshot of the store.
	Store string
}

// Write writes a backup to a file, which it replaces only when the backup is complete.
func (b Backup) Write(file string) (err error) {
	temporary, err := os.OpenFile(file+".part", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, private)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	if err := errors.Join(b.encode(temporary), temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(temporary.Name(), file)
}

func (b Backup) encode(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	b.Format = format
	description, err := json.MarshalIndent(b.Description, "", "  ")
	if err != nil {
		return err
	}
	if err := add(archive, descriptionEntry, description); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.Keys)) {
		if err := add(archive, keysPrefix+name, b.Keys[name]); err != nil {
			return err
		}
	}
	if err := addFile(archive, storeEntry, b.Store); err != nil {
		return err
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func add(archive *tar.Writer, name string, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: private, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

func addFile(archive *tar.Writer, name, file string) error {
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: private, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(archive, content)
	return err
}

// Read reads a backup, and writes the snapshot of the store to a file in a directory.
func Read(file, dir string) (Backup, error) {
	content, err := os.Open(file)
	if err != nil {
		return Backup{}, err
	}
	defer content.Close()
	compressed, err := gzip.NewReader(content)
	if err != nil {
		return Backup{}, fmt.Errorf("%s is not a backup: %w", file, err)
	}
	b := Backup{Keys: map[string][]byte{}}
	if err := b.decode(tar.NewReader(compressed), dir); err != nil {
		return Backup{}, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := io.Copy(io.Discard, compressed); err != nil { // the checksum follows the last entry
		return Backup{}, fmt.Errorf("%s: the backup is damaged: %w", file, err)
	}
	return b, nil
}

func (b *Backup) decode(archive *tar.Reader, dir string) error {
	for {
		entry, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return b.check()
		case err != nil:
			return fmt.Errorf("the backup is damaged: %w", err)
		case entry.Name == descriptionEntry:
			err = json.NewDecoder(io.LimitReader(archive, maxEntry)).Decode(&b.Description)
		case strings.HasPrefix(entry.Name, keysPrefix):
			b.Keys[path.Base(entry.Name)], err = io.ReadAll(io.LimitReader(archive, maxEntry))
		case entry.Name == storeEntry:
			b.Store = filepath.Join(dir, storeEntry)
			err = extract(archive, b.Store)
		}
		if err != nil {
			return fmt.Errorf("the backup is damaged: %s: %w", entry.Name, err)
		}
	}
}

func extract(from io.Reader, file string) error {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, private)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// check returns an error if a part is missing.
func (b *Backup) check() error {
	switch {
	case b.Format > format:
		return fmt.Errorf("the backup has the format %d, which a newer version of kindred (%s) has written", b.Format, b.Version)
	case b.Format == 0 || len(b.Keys) == 0 || b.Store == "":
		return errors.New("the backup is not complete")
	}
	return nil
}
