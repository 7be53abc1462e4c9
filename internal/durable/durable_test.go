// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

var errFault = errors.New("fault")

// allSteps are those of a write that is synced, in order.
var allSteps = []string{"create", "set mode", "write", "sync file", "close", "rename", "sync directory"}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func replacementOf(path string) replacement {
	return replacement{path: path, mode: 0o600, write: contentOf([]byte("new")), sync: true}
}

func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		sync bool
		want []string
	}{
		{true, allSteps},
		{false, []string{"create", "set mode", "write", "close", "rename"}},
	} {
		r := replacementOf(filepath.Join(t.TempDir(), "file"))
		r.sync = tt.sync
		var got []string
		err := r.run(func(step string, do func() error) error {
			got = append(got, step)
			return do()
		})
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("sync %v: steps %q, error %v; want %q", tt.sync, got, err, tt.want)
		}
	}
}

// TestReaders: at every moment a reader finds the old content or the new one.
func TestReaders(t *testing.T) {
	for _, old := range []string{"none", "old"} {
		path := filepath.Join(t.TempDir(), "file")
		if old != "none" {
			if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := replacementOf(path).run(func(step string, do func() error) error {
			before, err := read(t, path), do()
			after := read(t, path)
			renamed := slices.Index(allSteps, step) >= slices.Index(allSteps, "rename")
			if wantBefore := old; before != wantBefore && step != "sync directory" {
				t.Errorf("before %q the file has %q, want %q", step, before, wantBefore)
			}
			if want := map[bool]string{false: old, true: "new"}[renamed]; after != want {
				t.Errorf("after %q the file has %q, want %q", step, after, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestFaults: an error at any step leaves the old content or the new one, and nothing else.
func TestFaults(t *testing.T) {
	for _, step := range allSteps {
		for _, when := range []string{"instead", "after"} {
			t.Run(step+" "+when, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "file")
				if err := WriteFile(path, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
				err := replacementOf(path).run(func(now string, do func() error) error {
					if now != step {
						return do()
					}
					if when == "after" {
						if err := do(); err != nil {
							t.Error(err)
						}
					}
					return errFault
				})
				if !errors.Is(err, errFault) {
					t.Errorf("error %v, want the fault", err)
				}
				want := "old"
				if step == "sync directory" || step == "rename" && when == "after" {
					want = "new"
				}
				if got := read(t, path); got != want {
					t.Errorf("the file has %q, want %q", got, want)
				}
				if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
					t.Errorf("left behind: %q", got)
				}
			})
		}
	}
}

// TestCrashes: what a crash after any step leaves does not hinder the next write.
func TestCrashes(t *testing.T) {
	for _, step := range allSteps {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		if err := WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = replacementOf(path).run(func(now string, do func() error) error {
				err := do()
				if now == step {
					panic("crash") // leaves the temporary file, as a crash does
				}
				return err
			})
		}()
		if got := read(t, path); got != "old" && got != "new" {
			t.Errorf("a crash after %q left %q", step, got)
		}
		if err := WriteFile(path, []byte("next"), 0o644); err != nil {
			t.Errorf("after a crash after %q: %v", step, err)
		}
		if got := read(t, path); got != "next" {
			t.Errorf("after a crash after %q the next write left %q", step, got)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
			t.Errorf("after a crash after %q the next write left behind %q", step, got)
		}
	}
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Write(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "ne")
		return errors.Join(err, errFault)
	})
	if !errors.Is(err, errFault) || read(t, path) != "old" || len(names(t, dir)) != 1 {
		t.Errorf("error %v, content %q, files %q", err, read(t, path), names(t, dir))
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(taken, nil, 0o600); err == nil || slices.Contains(names(t, dir), "taken.new") {
		t.Errorf("a directory was replaced by a file: error %v, files %q", err, names(t, dir))
	}
	if err := WriteFile(filepath.Join(dir, "missing", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

// TestMode: the umask does not matter, nor does the mode of the old file or of a leftover.
func TestMode(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, write := range []func(string, []byte, fs.FileMode) error{WriteFile, WriteCache} {
		for _, mode := range []fs.FileMode{0o600, 0o644, 0o400} {
			path := filepath.Join(t.TempDir(), "file")
			for _, present := range []string{path, path + ".new"} {
				if err := os.WriteFile(present, []byte("old"), 0o666); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(present, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := write(path, []byte("new"), mode); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != mode {
				t.Errorf("mode %v, error %v; want %v", info.Mode(), err, mode)
			}
		}
	}
}

// TestLeftoverIsNotFollowed: a link in the place of the temporary file is removed, not
// written through.
func TestLeftoverIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if read(t, other) != "untouched" || read(t, path) != "new" {
		t.Errorf("other has %q, file has %q", read(t, other), read(t, path))
	}
}

func TestRenameDir(t *testing.T) {
	for _, tt := range []struct {
		name  string
		there []string // files in a directory of the final name; nil if there is none
		fails bool
	}{
		{name: "free"},
		{name: "empty", there: []string{}, fails: true},
		{name: "taken", there: []string{"x"}, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "partial"), filepath.Join(dir, "whole")
			if err := os.Mkdir(from, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(from, "a"), []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.there != nil {
				if err := os.Mkdir(to, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range tt.there {
				if err := os.WriteFile(filepath.Join(to, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := RenameDir(from, to)
			if tt.fails {
				if err == nil || !slices.Equal(names(t, to), tt.there) || read(t, filepath.Join(from, "a")) != "new" {
					t.Errorf("error %v; %q in its place", err, names(t, to))
				}
				return
			}
			if err != nil || read(t, filepath.Join(to, "a")) != "new" || !slices.Equal(names(t, dir), []string{"whole"}) {
				t.Errorf("error %v, files %q", err, names(t, dir))
			}
		})
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(path); err != nil || read(t, path) != "none" {
			t.Errorf("error %v, content %q", err, read(t, path))
		}
	}
}
