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

// postponed counts the writes that failed and may succeed when they are retried.
type postponed struct {
	count int
	first string
}

// postpone leaves a write to the next request. It is not a problem, because the user need not solve
// it.
func (u *undeletion) postpone(format string, args ...any) {
	if u.postponed.count++; u.postponed.count == 1 {
		u.postponed.first = fmt.Sprintf(format, args...)
	}
}

// reportPostponed reports what the next request retries.
func (u *undeletion) reportPostponed() {
	switch n := u.postponed.count; {
	case n == 1:
		u.report.Waiting = "the server was busy; the next request retries: " + u.postponed.first
	case n > 1:
		u.report.Waiting = fmt.Sprintf("the server was busy; the next request retries %d writes, the first of them: %s", n, u.postponed.first)
	}
}

// isProceeding reports whether every write so far has succeeded.
func (u *undeletion) isProceeding() bool {
	return u.postponed.count == 0 && len(u.report.Problems) == 0
}

// isRetryable reports whether a failed write may succeed when it is retried: the server is busy, or
// another client wrote at the same time.
func isRetryable(err error) bool {
	var timeout net.Error
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
