// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/kindred-project/kindred/test/netns"
)

// A transaction of another program is noticed whenever it happens, and its own are not taken for one.
func TestWatched(t *testing.T) {
	netns.Required(t)
	other := func() { command(t, "nft", "add table inet other; delete table inet other") }
	own := func() uint32 { command(t, "nft", "add table inet own; delete table inet own"); return 1 }
	nothing := func() uint32 { return 0 }
	yes, no := func() bool { return true }, func() bool { return false }
	for name, tt := range map[string]struct {
		do   func(*watched)
		want bool
	}{
		"never checked":         {func(*watched) {}, true},
		"intact":                {func(w *watched) { w.check(yes) }, false},
		"not intact":            {func(w *watched) { w.check(yes); w.check(no) }, true},
		"own":                   {func(w *watched) { w.check(yes); w.during(own) }, false},
		"own, without a change": {func(w *watched) { w.check(yes); w.during(nothing) }, false},
		"other":                 {func(w *watched) { w.check(yes); other() }, true},
		"other, before own":     {func(w *watched) { w.check(yes); other(); w.during(own) }, true},
		"other, while own":      {func(w *watched) { w.check(yes); w.during(func() uint32 { other(); return own() }) }, true},
		"other, after own":      {func(w *watched) { w.check(yes); w.during(own); other() }, true},
		"other, before nothing": {func(w *watched) { w.check(yes); other(); w.during(nothing) }, true},
		"other, while nothing":  {func(w *watched) { w.check(yes); w.during(func() uint32 { other(); return 0 }) }, true},
		"other, while checked":  {func(w *watched) { w.check(func() bool { other(); return true }) }, true},
		"own, before the check": {func(w *watched) { w.during(own) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w watched
			tt.do(&w)
			if got := w.changedByOthers(); got != tt.want {
				t.Errorf("changed by others: %t, want %t", got, tt.want)
			}
		})
	}
}
