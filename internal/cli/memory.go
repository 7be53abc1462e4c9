// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
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

// settling is the time that a cluster works on its start after it is ready, for example to start its
// controllers.
const settling = 5 * time.Second

// freeStart returns the memory that only the start needed to the operating system: its garbage, which is
// larger than the live heap and which an idle cluster would not collect for minutes, and pages of the binary.
func freeStart() {
	debug.FreeOSMemory()
	if err := unmapStartPages(); err != nil {
		klog.Background().Error(err, "Cannot unmap the pages of the binary that only the start needed")
	}
}
