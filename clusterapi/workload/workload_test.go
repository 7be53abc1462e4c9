// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"testing"
)

func TestJoinLine(t *testing.T) {
	tests := map[string]struct {
		out  string
		want []string
	}{
		"the line":          {"kindred join https://10.0.0.1:6443 --token a.b --ca-hash sha256:c\n", []string{"join", "https://10.0.0.1:6443", "--token", "a.b", "--ca-hash", "sha256:c"}},
		"after another one": {"Run on the machine:\n\n  kindred join https://x --token a\n", []string{"join", "https://x", "--token", "a"}},
		"none":              {out: "kindred up\n"},
		"empty":             {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := joinLine(tt.out)
			if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestIsAt(t *testing.T) {
	for peer, want := range map[string]bool{
		"https://10.192.0.2:2380": true, "https://10.192.0.20:2380": false, "https://[::ffff:10.192.0.2]:2380": false, "https://host:2380": false, ":": false,
	} {
		if got := isAt(peer, "10.192.0.2"); got != want {
			t.Errorf("%s: %v, want %v", peer, got, want)
		}
	}
}
