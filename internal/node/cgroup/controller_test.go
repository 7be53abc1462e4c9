// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHasController(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(v1, "memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v2, "cgroup.controllers"), []byte("cpu memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{v1, v2} {
		if !hasControllerIn(root, "memory") {
			t.Errorf("%s: memory is not found", root)
		}
		if hasControllerIn(root, "hugetlb") {
			t.Errorf("%s: hugetlb is found", root)
		}
	}
}
