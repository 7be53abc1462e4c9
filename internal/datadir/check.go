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

// format is the version of the layout this program reads and writes. It goes up
// when an older program could no longer make sense of the directory.
const format = 1

// ErrEmpty is what [Layout.Check] answers for a directory that is absent or has
// nothing in it yet: free to take, but there is no cluster in it.
var ErrEmpty = errors.New("no cluster has run there yet")

// Check tells whether the directory is ours: nil if it is, [ErrEmpty] if it could
// become ours, and otherwise an error which says why it is refused. It touches
// nothing.
func (l Layout) Check() error {
	entries, err := os.ReadDir(l.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return l.refuse(ErrEmpty)
	}
	if err != nil {
		return l.refuse(unreadable(err))
	}
	text, err := os.ReadFile(l.versionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return l.refuse(withoutVersion(entries))
	}
	if err != nil {
		return l.refuse(unreadable(err))
	}
	return l.refuse(checkFormat(string(text)))
}

// refuse puts the directory's name before a refusal.
func (l Layout) refuse(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("data directory %s: %w", l.Root, err)
}

func unreadable(err error) error {
	return fmt.Errorf("cannot be read: %w; fix it or use another --data-dir", bare(err))
}

// bare takes the path out of an error that will name the directory anyway.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// withoutVersion judges a directory which has no version file. Our own lock file
// alone is a cluster that is being set up this moment, or died doing so;
// lost+found alone is an empty file system.
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

// mark makes the directory ours.
func (l Layout) mark() error {
	return durable.WriteFile(l.versionFile(), []byte(strconv.Itoa(format)+"\n"), 0o644)
}
