// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"testing"

	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }
