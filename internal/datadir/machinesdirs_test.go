// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMachinesDirs: each directory is kept once, also when another one is used.
func TestMachinesDirs(t *testing.T) {
	l := layoutAt(t, t.TempDir())
	if none, err := l.MachinesDirs(); err != nil || len(none) > 0 {
		t.Errorf("before the first: %q, %v", none, err)
	}
	for _, dir := range []string{"/srv/a", "/srv/b c", "/srv/a"} {
		if err := l.AddMachinesDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.MachinesDirs()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/srv/a", "/srv/b c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	write(t, l.machinesFile(), "/srv/a")
	if _, err := l.MachinesDirs(); err == nil || !strings.Contains(err.Error(), l.Root+": machines.json: ") {
		t.Errorf("a damaged file: %v", err)
	}
	if err := l.AddMachinesDir("/srv/a"); err == nil {
		t.Error("a damaged file is replaced")
	}
}
