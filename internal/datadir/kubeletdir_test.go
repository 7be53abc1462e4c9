// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinkNode(t *testing.T) {
	l := layoutAt(t, filepath.Join(t.TempDir(), "data"))
	link := filepath.Join(t.TempDir(), "var", "kubelet")
	for range 2 {
		if err := l.LinkNode(link); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(link, "f"), "")
	if _, err := os.Stat(filepath.Join(l.Node(), "f")); err != nil {
		t.Error(err)
	}
	other := layoutAt(t, filepath.Join(t.TempDir(), "data"))
	if err := other.LinkNode(link); err == nil || !strings.Contains(err.Error(), "--kubelet-dir") {
		t.Errorf("a link of another cluster: %v", err)
	}
	if err := other.UnlinkNode(link); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("the link of another cluster was removed: %v", err)
	}
	if err := l.UnlinkNode(link); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link still exists: %v", err)
	}
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := l.LinkNode(link); err == nil {
		t.Error("a directory was taken over")
	}
}
