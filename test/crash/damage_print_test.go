// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fingerprint returns the state of all files in a directory: names, times and contents.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s %s %d", path, info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, " %x", sha256.Sum256(content))
		}
		all.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
