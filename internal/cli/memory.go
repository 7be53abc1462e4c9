// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much a cluster's heap may grow, in percent of what is in use,
// before it is collected. Go's default of 100 spends a fifth of the processor on
// collection while many objects are written; this spends half of that.
const gcPercent = 200

// tuneGC sets what the Go runtime keeps for the process. GOGC in the environment wins.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// freeStartGarbage gives back what the start left: more than what stays in use, and
// at rest it would not be collected for minutes.
func freeStartGarbage() { debug.FreeOSMemory() }
