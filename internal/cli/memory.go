// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime/debug"
	"time"
)

// gcPercent is how much a cluster's heap may grow, in percent of what is in use,
// before it is collected. Go's default of 100 spends a fifth of the processor on
// collection while many objects are written; this spends half of that.
const gcPercent = 200

// tuneGC sets what the Go runtime keeps for the process. GOGC in the environment wins.
// It is for clusters that run: what a start keeps would lie scattered among its garbage,
// the wider the later that is collected.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// settling is how long after its start a cluster has done what only a start does: the
// OpenAPI documents, for one, are put together after it is ready.
const settling = 5 * time.Second

// freeStartGarbage gives back what the start left: more than what stays in use, and
// at rest it would not be collected for minutes.
func freeStartGarbage() { debug.FreeOSMemory() }
