// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMachineWithoutNftables: without a usable nft, one line says what does not work and what is needed; pods run.
func TestMachineWithoutNftables(t *testing.T) {
	t.Parallel()
	old := t.TempDir()
	script := "#!/bin/sh\necho 'nftables v0.9.8 (E.D.S.)'\n"
	if err := os.WriteFile(filepath.Join(old, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, cause string }{
		"absent": {"/nonexistent", "could not find nftables binary"},
		"old":    {old + ":/usr/bin:/bin", "got nftables v0.9.8"},
	} {
		t.Run(name, func(t *testing.T) {
			needContainers(t)
			c := ownClusterUnder(t, []string{"/usr/bin/env", "PATH=" + tt.path})
			if err := c.loadImages(); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"Services, host ports and NetworkPolicies do not work", tt.cause, "apt-get install nftables"} {
				if lines := linesWith(c.up.out.String(), part); len(lines) != 1 {
					t.Errorf("lines with %q: %q", part, lines)
				}
			}
			s := newSession(t, c)
			s.kubectl("run", "web", "--image="+image, "--", "sleep", "3600")
			s.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
		})
	}
}

// TestRootWithoutCapabilities: root that lacks what a node needs gets a simulated node, and one line that says why.
func TestRootWithoutCapabilities(t *testing.T) {
	t.Parallel()
	needContainers(t)
	for _, capability := range []string{"net_admin", "sys_admin"} {
		t.Run(capability, func(t *testing.T) {
			c := ownClusterUnder(t, []string{"setpriv", "--bounding-set", "-" + capability, "--inh-caps", "-" + capability})
			const why = "no real node, a simulated one instead: missing CAP_"
			lines := linesWith(c.up.out.String(), why)
			if len(lines) != 1 || !strings.Contains(lines[0], "--privileged") {
				t.Errorf("lines with %q: %q", why, lines)
			}
			s := newSession(t, c)
			s.kubectl("run", "web", "--image="+image)
			s.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=30s")
		})
	}
}

// linesWith returns the lines of a text that contain a part.
func linesWith(text, part string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
