// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// backing creates a file of the size, whose device is detached at the end.
func backing(t *testing.T, size int64) string {
	t.Helper()
	if _, err := os.Stat(control); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and loop devices")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if device, err := Find(file); err == nil && device != "" {
			_ = Detach(device)
		}
	})
	return file
}

func attach(t *testing.T, file string) string {
	t.Helper()
	device, err := Attach(file)
	if err != nil {
		t.Fatal(err)
	}
	return device
}

func TestAttachIsIdempotent(t *testing.T) {
	file := backing(t, 1<<20)
	if device, err := Find(file); device != "" || err != nil {
		t.Fatalf("before: %q, %v", device, err)
	}
	device := attach(t, file)
	if again := attach(t, file); again != device {
		t.Errorf("attached twice: %s and %s", device, again)
	}
	link := file + "-link"
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if again := attach(t, link); again != device {
		t.Errorf("through a link: %s, want %s", again, device)
	}
	if err := Detach(device); err != nil {
		t.Fatal(err)
	}
	if device, err := Find(file); device != "" || err != nil {
		t.Errorf("after: %q, %v", device, err)
	}
	if err := Detach(device); err != nil {
		t.Errorf("detach again: %v", err)
	}
}

func TestAttachTogether(t *testing.T) {
	file := backing(t, 1<<20)
	var all sync.WaitGroup
	devices := make([]string, 8)
	for i := range devices {
		all.Go(func() { devices[i], _ = Attach(file) })
	}
	all.Wait()
	for _, device := range devices {
		if device == "" || device != devices[0] {
			t.Fatalf("devices %v", devices)
		}
	}
}

func TestDataGoesToTheFile(t *testing.T) {
	file := backing(t, 1<<20)
	device := attach(t, file)
	node, err := os.OpenFile(device, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.WriteString("data"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(data), "data") {
		t.Errorf("the file begins with %q, %v", data[:8], err)
	}
}

func TestGrows(t *testing.T) {
	file := backing(t, 1<<20)
	device := attach(t, file)
	if err := os.Truncate(file, 2<<20); err != nil {
		t.Fatal(err)
	}
	attach(t, file)
	node, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if size, err := node.Seek(0, 2); err != nil || size != 2<<20 {
		t.Errorf("size %d, %v", size, err)
	}
}

func TestAttachMissingFile(t *testing.T) {
	if _, err := Attach(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestDetachBelow(t *testing.T) {
	file, other := backing(t, 1<<20), backing(t, 1<<20)
	attach(t, file)
	device := attach(t, other)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := DetachBelow(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if left, err := Find(file); left != "" || err != nil {
		t.Errorf("still attached to %q, %v", left, err)
	}
	if left, err := Find(other); left != device || err != nil {
		t.Errorf("another directory's file: %q, %v", left, err)
	}
}
