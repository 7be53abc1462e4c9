// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// file is one file of a volume.
type file struct {
	data  []byte
	mode  os.FileMode
	owner *int64 // nil: root
}

// payload is the content of a volume: files by relative path.
type payload map[string]file

// The names that make an update atomic. Containers see
//
//	<volume>/key        -> ..data/key
//	<volume>/..data     -> ..2006_01_02_15_04_05.123
//	<volume>/..2006_01_02_15_04_05.123/key
//
// so that one rename of ..data replaces all files at once.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	stampLayout = "..2006_01_02_15_04_05."
)

// atomicWriter makes a directory show a payload.
type atomicWriter struct {
	dir   string
	clock clock.PassiveClock
	own   func(dir string) error // sets the group of a new tree before containers see it
}

// write makes the directory show the payload. Readers see either all old files or all new ones. A crash
// at any point leaves one of the two, and at worst a directory that the next write removes. Nothing is
// synced: after power loss the next write
// compares the files with the payload, and writes those that differ again.
func (w atomicWriter) write(content payload) error {
	content, err := cleaned(content)
	if err != nil {
		return err
	}
	current, err := w.current()
	if err != nil {
		return err
	}
	if current == "" || !hasContent(filepath.Join(w.dir, current), content) {
		if current, err = w.writeStamped(content); err != nil {
			return err
		}
		if err := w.switchTo(current); err != nil {
			return err
		}
	}
	if err := w.link(content); err != nil {
		return err
	}
	return w.sweep(current, content)
}

// current returns the target of ..data, or "" if it does not exist.
func (w atomicWriter) current() (string, error) {
	target, err := os.Readlink(filepath.Join(w.dir, dataLink))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return target, err
}

// writeStamped writes the payload to a new directory and returns its name.
func (w atomicWriter) writeStamped(content payload) (string, error) {
	dir, err := os.MkdirTemp(w.dir, w.clock.Now().UTC().Format(stampLayout))
	if err != nil {
		return "", err
	}
	if err := fill(dir, content); err != nil {
		return "", err
	}
	if err := w.own(dir); err != nil {
		return "", err
	}
	return filepath.Base(dir), nil
}

func fill(dir string, content payload) error {
	// Containers that run as other users must be able to enter.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range content {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.data, f.mode); err != nil {
			return err
		}
		// The umask may have cleared bits.
		if err := os.Chmod(full, f.mode); err != nil {
			return err
		}
		if f.owner == nil {
			continue
		}
		if err := os.Chown(full, int(*f.owner), -1); err != nil {
			return err
		}
	}
	return nil
}

// switchTo atomically makes ..data point to the stamped directory.
func (w atomicWriter) switchTo(stamped string) error {
	temporary := filepath.Join(w.dir, newDataLink)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(stamped, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(w.dir, dataLink))
}

// link links the first element of each path to ..data.
func (w atomicWriter) link(content payload) error {
	for name := range visibleNames(content) {
		at, target := filepath.Join(w.dir, name), filepath.Join(dataLink, name)
		if now, err := os.Readlink(at); err == nil && now == target {
			continue
		}
		if err := os.Symlink(target, at); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes links to files that no longer exist, and directories of older writes.
func (w atomicWriter) sweep(current string, content payload) error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	visible := visibleNames(content)
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(w.dir, name)
		switch {
		case name == dataLink || name == current || visible[name]:
		case strings.HasPrefix(name, "..") && isStamped(name):
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		case entry.Type()&fs.ModeSymlink != 0:
			// Only links to ..data. Directories are mount points of other volumes.
			if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, dataLink+"/") {
				continue
			}
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func isStamped(name string) bool {
	if len(name) <= len(stampLayout) {
		return false
	}
	_, err := time.Parse(stampLayout, name[:len(stampLayout)])
	return err == nil
}

// hasContent reports whether the directory has exactly these files with this content.
func hasContent(dir string, content payload) bool {
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		want, ok := content[relative]
		if !ok {
			return fs.ErrExist
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, want.data) {
			return fs.ErrInvalid
		}
		found++
		return nil
	})
	return err == nil && found == len(content)
}

// visibleNames returns the first elements of all paths.
func visibleNames(content payload) map[string]bool {
	names := make(map[string]bool, len(content))
	for path := range content {
		first, _, _ := strings.Cut(path, "/")
		names[first] = true
	}
	return names
}

// cleaned normalizes paths, and fails if one would leave the volume.
func cleaned(content payload) (payload, error) {
	out := make(payload, len(content))
	for _, path := range slices.Sorted(maps.Keys(content)) {
		clean := filepath.Clean(path)
		switch {
		case path == "" || clean == ".":
			return nil, fmt.Errorf("invalid path: must not be empty: %q", path)
		case filepath.IsAbs(path):
			return nil, fmt.Errorf("invalid path: must be relative path: %s", path)
		case slices.Contains(strings.Split(path, "/"), ".."):
			return nil, fmt.Errorf("invalid path: must not contain '..': %s", path)
		case strings.HasPrefix(clean, ".."):
			return nil, fmt.Errorf("invalid path: must not start with '..': %s", path)
		}
		out[clean] = content[path]
	}
	return out, nil
}
