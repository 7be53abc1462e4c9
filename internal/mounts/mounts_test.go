// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tree mounts memory at the places of a new directory, and returns the directory.
func tree(t *testing.T, places ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	t.Cleanup(func() { _ = DetachAt(dir) })
	for _, place := range places {
		point := filepath.Join(dir, place)
		if err := os.MkdirAll(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", point, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// left are the mounts below dir, relative to it.
func left(t *testing.T, dir string) []string {
	t.Helper()
	points, err := At(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range points {
		if points[i], err = filepath.Rel(dir, points[i]); err != nil {
			t.Fatal(err)
		}
	}
	return points
}

func TestDetach(t *testing.T) {
	for _, tt := range []struct {
		name   string
		places []string
		detach func(dir string) error
		want   []string
	}{
		{"at", []string{"a", "a/b", "a/b/c"}, DetachAt, []string{}},
		{"below", []string{"a", "a/b", "a/b/c"}, DetachBelow, []string{"a"}},
		{"one on the other", []string{"a", "a/b", "a/b", "a"}, DetachAt, []string{}},
		{"hidden by another", []string{"a/b", "a", "a/b"}, DetachAt, []string{}},
		{"neighbours stay", []string{"a b", "ab", "a", "b"}, DetachAt, []string{"a b", "ab", "b"}},
		{"names with blanks", []string{"a/b c\t\\d"}, DetachAt, []string{}},
		{"nothing", []string{"b"}, DetachAt, []string{"b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, tt.places...)
			if err := tt.detach(filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, left(t, dir)); diff != "" {
				t.Errorf("mounted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetachBusy(t *testing.T) {
	dir := tree(t, "a")
	file, err := os.Create(filepath.Join(dir, "a", "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := DetachAt(dir); err != nil {
		t.Fatal(err)
	}
	if got := left(t, dir); len(got) > 0 {
		t.Errorf("still mounted: %v", got)
	}
	if _, err := file.WriteString("its user has it still"); err != nil {
		t.Error(err)
	}
}

func TestDetachThroughSymlink(t *testing.T) {
	dir := tree(t, "a")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := DetachBelow(link); err != nil {
		t.Fatal(err)
	}
	if got := left(t, dir); len(got) > 0 {
		t.Errorf("still mounted: %v", got)
	}
}

func TestUnmountAt(t *testing.T) {
	dir := tree(t, "a", "a/b", "c")
	file, err := os.Create(filepath.Join(dir, "a", "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := UnmountAt(filepath.Join(dir, "a")); err == nil {
		t.Error("a busy mount was unmounted")
	}
	if diff := cmp.Diff([]string{"a", "c"}, sorted(left(t, dir))); diff != "" {
		t.Errorf("mounted (-want +got):\n%s", diff)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := UnmountAt(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"c"}, left(t, dir)); diff != "" {
		t.Errorf("mounted (-want +got):\n%s", diff)
	}
}

func TestRemoveAllKeepsMounts(t *testing.T) {
	dir := tree(t, "a/b")
	kept := filepath.Join(dir, "a", "b", "f")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveAll(filepath.Join(dir, "a")); err == nil {
		t.Error("a directory with a mount was removed")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a mounted file was removed: %v", err)
	}
	if err := DetachAt(dir); err != nil {
		t.Fatal(err)
	}
	if err := RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
