// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConntrackIsFound asks this kernel for the table of connections, and for a subsystem that no kernel has.
func TestConntrackIsFound(t *testing.T) {
	if err := conntrackError(); err != nil {
		t.Errorf("the kernel's table of connections: %v", err)
	}
	const unused = 14 // NFNL_SUBSYS_COUNT is 13
	if err := netfilterError(unused, conntrackStatistics); !isAbsent(err) {
		t.Errorf("a subsystem that does not exist: %v", err)
	}
}

func TestIsAbsent(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, unix.EPERM: false, unix.EINVAL: true, unix.EPROTONOSUPPORT: true,
		fmt.Errorf("asking: %w", unix.EOPNOTSUPP): true,
	} {
		if got := isAbsent(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
