// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// postponed is what the API could not do when it was asked, and may do when asked again.
type postponed struct {
	count int
	first string
}

// postpone leaves something to the next request. It is no problem: nobody has to solve it.
func (u *undeletion) postpone(format string, args ...any) {
	if u.postponed.count++; u.postponed.count == 1 {
		u.postponed.first = fmt.Sprintf(format, args...)
	}
}

// tellPostponed says what the next request tries again.
func (u *undeletion) tellPostponed() {
	switch n := u.postponed.count; {
	case n == 1:
		u.report.Waiting = "the server was busy, and the next request tries again: " + u.postponed.first
	case n > 1:
		u.report.Waiting = fmt.Sprintf("the server was busy, and the next request tries %d writes again, the first of them: %s", n, u.postponed.first)
	}
}

// goesOn reports whether everything that was tried so far was done.
func (u *undeletion) goesOn() bool { return u.postponed.count == 0 && len(u.report.Problems) == 0 }

// isPassing reports whether a write that failed may succeed when it is tried again: the server
// is busy, or another client wrote at the same time.
func isPassing(err error) bool {
	var timeout net.Error
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
