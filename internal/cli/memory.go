// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime/debug"
	"time"
)

// gcPercent is GOGC of a cluster. Go's default of 100 spends a fifth of the CPU on garbage
// collection while many objects are written; this value spends half of that.
const gcPercent = 200

// tuneGC sets gcPercent, unless GOGC is set in the environment. It is called after the start:
// with a higher percentage the objects that a start keeps would be scattered among its garbage.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// settling is the time that a cluster works on its start after it is ready, for example on its OpenAPI
// documents.
const settling = 5 * time.Second

// freeStartGarbage returns the garbage of the start to the operating system. It is larger than the
// live heap, and an idle cluster would not collect it for minutes.
func freeStartGarbage() { debug.FreeOSMemory() }
