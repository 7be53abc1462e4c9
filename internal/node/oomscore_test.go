// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOOMScore raises the score of another process, which is always allowed.
func TestOOMScore(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	process := fmt.Sprintf("/proc/%d", child.Process.Pid)
	if err := writeOOMScore(process, 900); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(process, "oom_score_adj"))
	if err != nil || strings.TrimSpace(string(got)) != "900" {
		t.Errorf("the score is %s, %v", got, err)
	}
	if err := writeOOMScore(t.TempDir()+"/gone", -999); err == nil || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("of a process that is gone: %v", err)
	}
}
