// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path. The mode applies whatever the umask is.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return Write(path, mode, contentOf(data))
}

// Write replaces the file at path with what write produces. If write fails, the file stays
// as it was.
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return replacement{path: path, mode: mode, write: write, sync: true}.run(plainly)
}

// WriteCache replaces a file that may be lost. It survives a crash of the process like a
// file written by [WriteFile]; after power loss it may be missing, empty or cut short.
func WriteCache(path string, data []byte, mode fs.FileMode) error {
	return replacement{path: path, mode: mode, write: contentOf(data)}.run(plainly)
}

// RenameDir gives a directory its final name, which must be free.
// The files directly in it need not be synced: RenameDir does so first. After power loss the
// name belongs to the whole directory or is as it was.
func RenameDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := syncPath(filepath.Join(from, entry.Name())); err != nil {
			return err
		}
	}
	if err := syncPath(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncPath(filepath.Dir(to))
}

// MakeDir makes a directory, if it does not exist. The mode applies whatever the umask is, to a
// directory that exists too.
func MakeDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// Remove removes a file, if it exists. The file does not come back after power loss.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

func contentOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// replacement is one write of a file.
type replacement struct {
	path  string
	mode  fs.FileMode
	write func(io.Writer) error
	sync  bool
}

// perform carries out a step of a replacement. Tests fail at each step in turn.
type perform func(step string, do func() error) error

func plainly(_ string, do func() error) error { return do() }

func (r replacement) run(perform perform) (err error) {
	temporary := r.path + ".new"
	var file *os.File
	defer func() {
		if err == nil {
			return
		}
		if file != nil {
			_ = file.Close()
		}
		_ = os.Remove(temporary)
	}()
	steps := []struct {
		name string
		skip bool
		do   func() error
	}{
		{name: "create", do: func() error { file, err = create(temporary, r.mode); return err }},
		{name: "set mode", do: func() error { return file.Chmod(r.mode) }}, // the umask may have taken bits away
		{name: "write", do: func() error { return r.write(file) }},
		{name: "sync file", skip: !r.sync, do: func() error { return file.Sync() }},
		{name: "close", do: func() error { return file.Close() }},
		{name: "rename", do: func() error { return os.Rename(temporary, r.path) }},
		{name: "sync directory", skip: !r.sync, do: func() error { return syncPath(filepath.Dir(r.path)) }},
	}
	for _, s := range steps {
		if s.skip {
			continue
		}
		if err := perform(s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// create makes a new file, and removes first what a crash left there.
func create(path string, mode fs.FileMode) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

// syncPath syncs a file's content, or the names in a directory.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
