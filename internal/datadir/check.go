// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/kindred-project/kindred/internal/durable"
)

// format is the version of the layout that this program reads and writes. It increases when an
// older program could not read the directory.
const format = 1

// ErrEmpty is returned by [Layout.Check] if the directory is missing or empty: it may be used, but
// has no cluster.
var ErrEmpty = errors.New("no cluster has run there yet")

// Check returns nil if the directory is a data directory, [ErrEmpty] if it could become one, and
// otherwise an error that says why not. It changes nothing.
func (l Layout) Check() error {
	entries, err := os.ReadDir(l.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return l.wrap(ErrEmpty)
	}
	if err != nil {
		return l.wrap(unreadable(err))
	}
	text, err := os.ReadFile(l.versionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return l.wrap(withoutVersion(entries))
	}
	if err != nil {
		return l.wrap(unreadable(err))
	}
	return l.wrap(checkFormat(string(text)))
}

// wrap adds the directory's name to an error.
func (l Layout) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("data directory %s: %w", l.Root, err)
}

func unreadable(err error) error {
	return fmt.Errorf("cannot be read: %w; fix it or use another --data-dir", bare(err))
}

// bare removes the path from an error; wrap adds the directory's.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// withoutVersion checks a directory that has no version file. If only Kindred's lock file is in it,
// a cluster is being created, or its creation was interrupted; if only lost+found, the file system
// is empty.
func withoutVersion(entries []fs.DirEntry) error {
	for _, entry := range entries {
		switch name := entry.Name(); name {
		case "kindred.lock", "kindred.version.new", "lost+found":
		default:
			return fmt.Errorf("not empty and not Kindred's (it has %q and no kindred.version); nothing was touched, use another --data-dir", name)
		}
	}
	return ErrEmpty
}

func checkFormat(text string) error {
	got, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || got < 1 {
		return fmt.Errorf("kindred.version does not hold a format number; nothing was touched, use another --data-dir")
	}
	if got > format {
		return fmt.Errorf("written by a newer kindred (format %d, this one knows %d); use that one", got, format)
	}
	return nil
}

// mark writes the version file, which makes the directory a data directory.
func (l Layout) mark() error {
	return durable.WriteFile(l.versionFile(), []byte(strconv.Itoa(format)+"\n"), 0o644)
}
