// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{0, 1, 2047, 2048, 2049, 100_000} {
		path, want := filepath.Join(dir, "f"), strings.Repeat("x", size)
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readFile(path); got != want || err != nil {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	want, err := os.ReadFile("/proc/self/limits")
	if got, gotErr := readFile("/proc/self/limits"); got != string(want) || err != nil || gotErr != nil {
		t.Errorf("got %q, %v, want %q, %v", got, gotErr, want, err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "none"): "open", dir: "read"} {
		_, err := readFile(path)
		var at *fs.PathError
		if !errors.As(err, &at) || at.Op != want || at.Path != path || errors.Is(err, fs.ErrNotExist) != (want == "open") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
