// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestKeeping changes a cached file and its stamp in every possible way.
func TestKeeping(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	builds := 0
	ask := func(key string) {
		t.Helper()
		err := File(file, key, func() error {
			builds++
			return os.WriteFile(file, []byte("content"), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(file); err != nil || string(content) != "content" {
			t.Errorf("content %q, %v", content, err)
		}
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name  string
		spoil func()
		key   string
		built int
	}{
		{"neither file nor stamp", func() {}, "a", 1},
		{"unchanged", func() {}, "a", 0},
		{"other inputs", func() {}, "b", 1},
		{"other content of the same size", func() { write(file, "CONTENT") }, "b", 1},
		{"other size", func() { write(file, "more content") }, "b", 1},
		{"the same content at another time", func() { write(file, "content") }, "b", 0},
		{"a damaged stamp", func() { write(stampName(file), "{") }, "b", 1},
		{"no file", func() { os.Remove(file) }, "b", 1},
		{"no stamp", func() { os.Remove(stampName(file)) }, "b", 1},
	} {
		builds = 0
		step.spoil()
		if ask(step.key); builds != step.built {
			t.Errorf("%s: built %d times, want %d", step.name, builds, step.built)
		}
	}
	if err := File(file, "c", func() error { return errors.New("no") }); err == nil {
		t.Error("an error is lost")
	}
	builds = 0
	if ask("b"); builds != 1 {
		t.Error("the file of a failed build counts as complete")
	}
}
