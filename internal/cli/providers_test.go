// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// managerOfMachines is a provider whose manager makes machines.
const managerOfMachines = `
apiVersion: v1
kind: Namespace
metadata: {name: some-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: some-system}
spec: {template: {spec: {containers: [{name: manager, args: ["--machines-dir=${KINDRED_MACHINES_DIR:=/var/lib/kindred-machines}"]}]}}}
`

// TestUpRefusesMachinesDir: a directory in which the provider could not make machines is refused before the start.
func TestUpRefusesMachinesDir(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cluster-api/v1.14.2/core-components.yaml": managerOfMachines, "clusterctl-api.yaml": ""} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for machines, want := range map[string]string{"machines": "it must be an absolute path", "/machines": "it must be below a directory"} {
		t.Setenv("KINDRED_MACHINES_DIR", machines)
		_, errOut, code := run(t, "up", "--data-dir", filepath.Join(t.TempDir(), "data"), "--cluster-api", dir)
		if code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit status %d, %s; want %q", machines, code, errOut, want)
		}
	}
}
