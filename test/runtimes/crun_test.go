// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCrunScript: the arguments reach crun as they are, and the unified hierarchy is hidden from crun alone.
func TestCrunScript(t *testing.T) {
	dir := t.TempDir()
	write := func(name, script string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	program := write("program", "#!/bin/sh\ntest -e "+unifiedHierarchy+"/cgroup.procs && printf 'unified|'\nprintf '%s|' \"$@\"\n")
	check := func(hybrid bool, want string) {
		t.Helper()
		script := crunScript(program+" --first", hybrid)
		out, err := exec.Command(write("crun", script), "/a b", "$HOME").CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s\n%q, %v; want %q", script, out, err, want)
		}
	}
	visible := "--first|/a b|$HOME|"
	if _, err := os.Stat(unifiedHierarchy + "/cgroup.procs"); err == nil {
		visible = "unified|" + visible
	}
	check(false, visible)
	if os.Geteuid() != 0 || !hybridControllers() {
		t.Skip("the rest needs root, and a unified hierarchy with controllers beside cgroup v1")
	}
	check(true, "--first|/a b|$HOME|")
	if !hybridControllers() {
		t.Error("the hierarchy is hidden from all")
	}
}
