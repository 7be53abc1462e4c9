// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEnds: a record that is written is read, also if it is shorter than the one before. What is no record counts as no ends.
func TestEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	read := func(want Ends) {
		t.Helper()
		if got, err := readEnds(path); err != nil || got != want {
			t.Errorf("ends %+v, %v; want %+v", got, err, want)
		}
	}
	read(Ends{})
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read(Ends{})
	for _, e := range []Ends{{12, "signal: killed"}, {1, "exit status 1"}, {}} {
		if err := writeEnds(file, e); err != nil {
			t.Fatal(err)
		}
		read(e)
	}
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	read(Ends{})
}
