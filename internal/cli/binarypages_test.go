// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestUnchangedMappings(t *testing.T) {
	const entries = `00400000-03a00000 r-xp 00000000 fe:00 100    /usr/bin/kindred x
Rss:               54868 kB
Anonymous:             0 kB
03a00000-03b00000 r-xp 03600000 fe:00 100    /usr/bin/kindred x
Anonymous:             4 kB
03b00000-08000000 r--p 03700000 fe:00 100    /usr/bin/kindred x
Anonymous:             0 kB
VmFlags: rd mr mw me sd
08000000-08100000 rw-p 07c00000 fe:00 100    /usr/bin/kindred x
Anonymous:             0 kB
08100000-08200000 r--s 00000000 fe:00 100    /usr/bin/kindred x
Anonymous:             0 kB
08200000-08300000 r--p 00000000 fe:00 101    /usr/bin/kindred
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 00:00 0    [vvar]
Anonymous:             0 kB
`
	got, err := unchangedMappings(strings.NewReader(entries), "/usr/bin/kindred x")
	if err != nil {
		t.Fatal(err)
	}
	if want := []mapping{{0x400000, 0x3a00000}, {0x3b00000, 0x8000000}}; !slices.Equal(got, want) {
		t.Errorf("unchanged mappings: %x, want %x", got, want)
	}
}

// TestUnmapStartPages: a process works on after its pages have been unmapped.
func TestUnmapStartPages(t *testing.T) {
	for range 3 {
		if err := unmapPages(); err != nil {
			t.Fatal(err)
		}
	}
}
