// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

const (
	// requestSeconds is the time limit of each request, after which progress is shown.
	requestSeconds = 2
	// stuckAfter is the time that an undeletion continues without progress.
	stuckAfter = 2 * time.Minute
	// pauseBetween is the delay after a request that made no progress.
	pauseBetween = time.Second
)

// undeleting carries out one undeletion in several requests.
type undeleting struct {
	send  func(ctx context.Context, review *ownership.Undeletion) error
	show  func(text string)
	clock clock.WithTicker
	// began reports whether a request was answered; then restored objects may be on hold.
	began bool
}

// undeletionCounts is the progress of an undeletion.
type undeletionCounts struct{ restored, adopted, left, pending, held int32 }

func countsOf(s *ownership.UndeletionStatus) undeletionCounts {
	return undeletionCounts{s.Restored, s.Adopted, s.Left, s.Pending, s.Held}
}

// run sends requests until everything is restored or a problem prevents it. The review then has
// the last answer.
func (u *undeleting) run(ctx context.Context, review *ownership.Undeletion) error {
	request := review.DeepCopy()
	if !request.Spec.DryRun {
		request.Spec.TimeoutSeconds = requestSeconds
	}
	u.show("undeleting " + kindAndName(request.Spec.Object) + ": reading the former objects and trying to create them")
	moved, before := u.clock.Now(), undeletionCounts{}
	var warnings []string // An answer has only the warnings of its own request.
	for {
		answer := request.DeepCopy()
		err := u.send(ctx, answer)
		switch {
		case ctx.Err() != nil:
			return u.withAdvice(errors.New("interrupted"))
		case err != nil && !u.isRetryable(err):
			return u.withAdvice(err)
		case err == nil:
			u.began = true
			review.Status = answer.Status
			s := &review.Status
			for _, warning := range s.Warnings {
				if !slices.Contains(warnings, warning) {
					warnings = append(warnings, warning)
				}
			}
			s.Warnings = warnings
			if s.Phase != ownership.UndeletionIncomplete || len(s.Problems) > 0 {
				return nil
			}
			u.show("undeleting " + kindAndName(request.Spec.Object) + ": " + progressOf(s))
			if now := countsOf(s); now != before {
				moved, before = u.clock.Now(), now
				continue
			}
		}
		if u.clock.Since(moved) >= stuckAfter {
			return u.stuck(err)
		}
		select {
		case <-ctx.Done():
			return u.withAdvice(errors.New("interrupted"))
		case <-u.clock.After(pauseBetween):
		}
	}
}

// isRetryable reports whether a failed request is worth a retry: the server was overloaded, or the
// connection was lost after the undeletion had begun.
func (u *undeleting) isRetryable(err error) bool {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	return u.began && (utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err))
}

// stuck ends an undeletion that makes no progress, with the last error if there is one.
func (u *undeleting) stuck(err error) error {
	if err != nil {
		return u.withAdvice(err)
	}
	return nil // The answer says that it is incomplete.
}

// withAdvice adds to an error how to continue. A request without an answer may have restored objects
// as well.
func (u *undeleting) withAdvice(err error) error {
	if !u.began && (apierrors.ReasonForError(err) != "" && !u.isRetryable(err)) {
		return err // It was refused before anything was changed.
	}
	return fmt.Errorf("%w; the restored objects are on hold: run the same command again to continue", err)
}

// progressOf describes the progress of an undeletion.
func progressOf(s *ownership.UndeletionStatus) string {
	if s.Pending > 0 {
		return fmt.Sprintf("%d of %d restored", s.Restored, s.Restored+s.Pending)
	}
	return fmt.Sprintf("%d restored, %d of them still on hold", s.Restored, s.Held)
}
