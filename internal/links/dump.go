// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts limits the repetitions. On a machine whose routes change all the time, every dump may be interrupted.
const attempts = 5

// Whole calls list until its dump is not interrupted: a change of what is listed can interrupt a dump of the kernel, which may then lack
// entries, or have them twice (NLM_F_DUMP_INTR, netlink(7)). If each attempt is, it returns the last one, without an error: callers look again
// later, and must bear that a list is not complete.
func Whole[T any](list func() (T, error)) (T, error) {
	var last T
	var err error
	for range attempts {
		last, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return last, err
		}
	}
	return last, nil
}
