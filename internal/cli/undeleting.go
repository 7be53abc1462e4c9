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
	// requestSeconds is how long each request works, so that progress can be told after it.
	requestSeconds = 2
	// stuckAfter is how long an undeletion goes on without making headway.
	stuckAfter = 2 * time.Minute
	// pauseBetween is how long to wait after a request that made none.
	pauseBetween = time.Second
)

// undeleting carries out one undeletion, with as many requests as it takes.
type undeleting struct {
	ask   func(ctx context.Context, review *ownership.Undeletion) error
	show  func(text string)
	clock clock.WithTicker
	// began reports whether a request was answered: objects may be back, on hold.
	began bool
}

// headway is how far an undeletion has come.
type headway struct{ restored, adopted, left, pending, held int32 }

func headwayOf(s *ownership.UndeletionStatus) headway {
	return headway{s.Restored, s.Adopted, s.Left, s.Pending, s.Held}
}

// run asks until everything is back or something stands in the way. The review has the last
// answer then.
func (u *undeleting) run(ctx context.Context, review *ownership.Undeletion) error {
	asked := review.DeepCopy()
	if !asked.Spec.DryRun {
		asked.Spec.TimeoutSeconds = requestSeconds
	}
	u.show("undeleting " + called(asked.Spec.Object) + ": reading and trying what there was")
	moved, before := u.clock.Now(), headway{}
	var warnings []string // Each answer has only those of its own request.
	for {
		answer := asked.DeepCopy()
		err := u.ask(ctx, answer)
		switch {
		case ctx.Err() != nil:
			return u.advised(errors.New("interrupted"))
		case err != nil && !u.mayPass(err):
			return u.advised(err)
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
			u.show("undeleting " + called(asked.Spec.Object) + ": " + progressOf(s))
			if now := headwayOf(s); now != before {
				moved, before = u.clock.Now(), now
				continue
			}
		}
		if u.clock.Since(moved) >= stuckAfter {
			return u.stuck(err)
		}
		select {
		case <-ctx.Done():
			return u.advised(errors.New("interrupted"))
		case <-u.clock.After(pauseBetween):
		}
	}
}

// mayPass reports whether a request that failed is worth another one: the server had no time for
// it, or an undeletion that has begun has lost it for a moment.
func (u *undeleting) mayPass(err error) bool {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	return u.began && (utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err))
}

// stuck is the end of an undeletion that makes no headway, with the last error if there is one.
func (u *undeleting) stuck(err error) error {
	if err != nil {
		return u.advised(err)
	}
	return nil // The answer says that it is incomplete.
}

// advised says how to go on after an error that ended an undeletion early. A request without an
// answer may have brought something back too.
func (u *undeleting) advised(err error) error {
	if !u.began && (apierrors.ReasonForError(err) != "" && !u.mayPass(err)) {
		return err // It was refused before anything was changed.
	}
	return fmt.Errorf("%w; what is back already is on hold: run the same command again to go on", err)
}

// progressOf says how far an undeletion has come.
func progressOf(s *ownership.UndeletionStatus) string {
	if s.Pending > 0 {
		return fmt.Sprintf("%d of %d restored", s.Restored, s.Restored+s.Pending)
	}
	return fmt.Sprintf("%d restored, %d of them still on hold", s.Restored, s.Held)
}
