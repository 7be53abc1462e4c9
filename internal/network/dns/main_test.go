// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"os"
	"testing"

	"github.com/kindred-project/kindred/test/netns"
)

// TestMain gives the tests a loopback of their own, with port 53 free on all of its addresses.
func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }
