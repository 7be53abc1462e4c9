// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
)

// newMachinesDir returns a directory of machines with an endpoint of an owner.
func newMachinesDir(t *testing.T, owner string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "machines")
	if err := os.MkdirAll(filepath.Join(dir, "endpoints"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text := `{"name": "api", "owner": "` + owner + `", "address": "10.192.255.254", "port": 6443}`
	if err := os.WriteFile(filepath.Join(dir, "endpoints", "api.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestResetFindsMachines: without a flag, a reset removes what the cluster has in the directories that "up" has stored, and with it, in that of the flag.
func TestResetFindsMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("machines on this host need root")
	}
	for name, named := range map[string]bool{"stored": false, "named": true} {
		t.Run(name, func(t *testing.T) {
			layout, err := datadir.New(filepath.Join(t.TempDir(), "data"))
			if err != nil {
				t.Fatal(err)
			}
			lock, err := layout.Lock()
			if err != nil {
				t.Fatal(err)
			}
			keys, err := pki.Open(layout.PKI(), clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			owner := join.HashOf(keys.Cluster.Certificate)
			stored, shared, unknown := newMachinesDir(t, owner), newMachinesDir(t, "another"), newMachinesDir(t, owner)
			for _, dir := range []string{stored, shared} {
				if err := layout.AddMachinesDir(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := lock.Release(); err != nil {
				t.Fatal(err)
			}
			args := []string{"reset", "--data-dir", layout.Root}
			if named {
				args = append(args, "--machines-dir", unknown)
			}
			if out, errOut, code := run(t, args...); code != 0 {
				t.Errorf("exit status %d: %s%s", code, out, errOut)
			}
			for dir, removed := range map[string]bool{stored: !named, shared: false, unknown: named} {
				if _, err := os.Stat(dir); os.IsNotExist(err) != removed {
					t.Errorf("%s is removed: %v, want %v", dir, os.IsNotExist(err), removed)
				}
			}
		})
	}
}
