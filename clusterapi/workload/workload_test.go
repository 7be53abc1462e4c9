// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import "testing"

func TestIsAt(t *testing.T) {
	for peer, want := range map[string]bool{
		"https://10.192.0.2:2380": true, "https://10.192.0.20:2380": false, "https://[::ffff:10.192.0.2]:2380": false, "https://host:2380": false, ":": false,
	} {
		if got := isAt(peer, "10.192.0.2"); got != want {
			t.Errorf("%s: %v, want %v", peer, got, want)
		}
	}
}
