// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"path/filepath"
	"testing"
)

func TestResolvConf(t *testing.T) {
	dir := t.TempDir()
	at := func(name string, servers ...string) string {
		path := filepath.Join(dir, name)
		writeResolvConf(t, path, servers...)
		return path
	}
	systemd, absent := at("systemd", "192.0.2.1"), filepath.Join(dir, "absent")
	stub, other, empty := at("stub", "127.0.0.53"), at("other", "127.0.0.1", "192.0.2.2"), at("empty")
	for _, test := range []struct{ usual, systemd, want string }{
		{stub, systemd, systemd}, {stub, absent, stub}, {other, systemd, other}, {empty, systemd, empty}, {absent, systemd, absent},
	} {
		if got := ResolvConf(test.usual, test.systemd); got != test.want {
			t.Errorf("ResolvConf(%s, %s) = %s, want %s", test.usual, test.systemd, got, test.want)
		}
	}
}
