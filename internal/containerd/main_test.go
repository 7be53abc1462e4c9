// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"os"
	"testing"

	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// needContainerd skips a test if containerd is missing, but not in CI.
func needContainerd(t *testing.T) {
	t.Helper()
	missing := Missing()
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI must have %v: %s", missing, HowToGet(missing))
	}
	t.Skipf("needs %v: %s", missing, HowToGet(missing))
}
