// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// written writes a backup and returns its file.
func written(t *testing.T) (string, Backup) {
	t.Helper()
	dir := t.TempDir()
	store := filepath.Join(dir, "snapshot")
	if err := os.WriteFile(store, []byte(strings.Repeat("store", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Backup{
		Description: Description{Version: "v1", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Authority: "sha256:00"},
		Keys:        map[string][]byte{"ca.crt": []byte("certificate"), "ca.key": []byte("key")}, Store: store,
	}
	file := filepath.Join(dir, "backup.tgz")
	if err := b.Write(file); err != nil {
		t.Fatal(err)
	}
	return file, b
}

func TestBackup(t *testing.T) {
	file, want := written(t)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	dir := t.TempDir()
	got, err := Read(file, dir)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(got.Store)
	if err != nil || string(content) != strings.Repeat("store", 1000) {
		t.Errorf("the store has %d bytes, %v", len(content), err)
	}
	want.Format, want.Store = format, got.Store
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
}

// TestDamagedBackups: what is cut off at any place, or changed, is refused.
func TestDamagedBackups(t *testing.T) {
	file, _ := written(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for end := range whole {
		damaged := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(damaged, whole[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(damaged, t.TempDir()); err == nil {
			t.Errorf("%d of %d bytes are taken for a backup", end, len(whole))
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), t.TempDir()); err == nil {
		t.Error("no file is taken for a backup")
	}
}

// FuzzRead: no content makes the reader fail in another way than by an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := Read(file, t.TempDir()); err == nil && b.Store == "" {
			t.Errorf("read %+v", b)
		}
	})
}
