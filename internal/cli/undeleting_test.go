// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// answers are the server's responses to the requests, in order; the last one is repeated.
type answers struct {
	statuses []ownership.UndeletionStatus
	errs     []error // errors by request, nil for a status
	asked    []ownership.UndeletionSpec
}

func (a *answers) send(_ context.Context, review *ownership.Undeletion) error {
	at := min(len(a.asked), max(len(a.statuses), len(a.errs))-1)
	a.asked = append(a.asked, review.Spec)
	if at < len(a.errs) && a.errs[at] != nil {
		return a.errs[at]
	}
	review.Status = a.statuses[at]
	return nil
}

func incomplete(restored, pending, held int32) ownership.UndeletionStatus {
	return ownership.UndeletionStatus{Phase: ownership.UndeletionIncomplete, Restored: restored, Pending: pending, Held: held}
}

// TestUndeletingContinues: the client repeats its request until the undeletion is complete, has a
// problem, or has made no progress for two minutes. If it ends early, the error says how to
// continue.
func TestUndeletingContinues(t *testing.T) {
	complete := ownership.UndeletionStatus{Phase: ownership.UndeletionComplete, Restored: 3}
	problem := incomplete(1, 2, 1)
	problem.Problems = []string{"a quota"}
	late := apierrors.NewTimeoutError("request did not complete", 0)
	busy := apierrors.NewTooManyRequests("busy", 1)
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", nil)
	lost := syscall.ECONNREFUSED
	const goOn = "the restored objects are on hold: run the same command again to continue"
	for name, tt := range map[string]struct {
		statuses []ownership.UndeletionStatus
		errs     []error
		phase    ownership.UndeletionPhase
		requests int
		takes    time.Duration
		err      string
	}{
		"at once":               {statuses: []ownership.UndeletionStatus{complete}, phase: ownership.UndeletionComplete, requests: 1},
		"in steps":              {statuses: []ownership.UndeletionStatus{incomplete(1, 2, 1), incomplete(3, 0, 3), incomplete(3, 0, 1), complete}, phase: ownership.UndeletionComplete, requests: 4},
		"controllers are slow":  {statuses: []ownership.UndeletionStatus{incomplete(3, 0, 3), incomplete(3, 0, 3), incomplete(3, 0, 3), complete}, phase: ownership.UndeletionComplete, requests: 4, takes: 2 * time.Second},
		"a problem":             {statuses: []ownership.UndeletionStatus{problem}, phase: ownership.UndeletionIncomplete, requests: 1},
		"no progress":           {statuses: []ownership.UndeletionStatus{incomplete(1, 2, 1)}, phase: ownership.UndeletionIncomplete, requests: 122, takes: stuckAfter},
		"the server is busy":    {statuses: []ownership.UndeletionStatus{{}, {}, complete}, errs: []error{late, busy}, phase: ownership.UndeletionComplete, requests: 3, takes: 2 * time.Second},
		"the server stays busy": {errs: []error{late}, requests: 121, takes: stuckAfter, err: goOn},
		"refused":               {errs: []error{refused}, requests: 1, err: "forbidden"},
		"refused in between":    {statuses: []ownership.UndeletionStatus{incomplete(1, 2, 1)}, errs: []error{nil, refused}, phase: ownership.UndeletionIncomplete, requests: 2, err: goOn},
		"no server":             {errs: []error{lost}, requests: 1, err: "connection refused"},
		"the server restarts":   {statuses: []ownership.UndeletionStatus{incomplete(1, 2, 1), {}, {}, complete}, errs: []error{nil, lost, lost}, phase: ownership.UndeletionComplete, requests: 4, takes: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			server := &answers{statuses: tt.statuses, errs: tt.errs}
			now := clocktesting.NewFakeClock(noon)
			passing := skipping{now}
			u := undeleting{send: server.send, show: func(string) {}, clock: passing}
			review := &ownership.Undeletion{}
			review.Spec.Object = refTo("ConfigMap", "root")
			err := u.run(t.Context(), review)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ends with %v", err)
			}
			if name == "refused" && strings.Contains(err.Error(), goOn) {
				t.Errorf("no status: %v", err)
			}
			if review.Status.Phase != tt.phase || len(server.asked) != tt.requests || now.Since(noon) != tt.takes {
				t.Errorf("%s after %d requests, %s", review.Status.Phase, len(server.asked), now.Since(noon))
			}
			if review.Spec.TimeoutSeconds != 0 || server.asked[0].TimeoutSeconds != requestSeconds {
				t.Errorf("asked %+v, printed %+v", server.asked[0], review.Spec)
			}
		})
	}
}

// TestUndeletingIsInterrupted: the error after an interruption says how to continue.
func TestUndeletingIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	u := undeleting{show: func(string) {}, clock: skipping{clocktesting.NewFakeClock(noon)}, send: func(ctx context.Context, _ *ownership.Undeletion) error {
		cancel()
		return ctx.Err()
	}}
	if err := u.run(ctx, &ownership.Undeletion{}); err == nil || err.Error() != "interrupted; the restored objects are on hold: run the same command again to continue" {
		t.Errorf("%v", err)
	}
}

// TestUndeletingShowsProgress: the client prints how many of how many objects are restored.
func TestUndeletingShowsProgress(t *testing.T) {
	var told []string
	server := &answers{statuses: []ownership.UndeletionStatus{incomplete(1, 2, 1), incomplete(3, 0, 2), {Phase: ownership.UndeletionComplete}}}
	u := undeleting{send: server.send, show: func(text string) { told = append(told, text) }, clock: skipping{clocktesting.NewFakeClock(noon)}}
	review := &ownership.Undeletion{}
	review.Spec.Object = refTo("ConfigMap", "root")
	if err := u.run(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	want := []string{"undeleting ConfigMap/root: reading the former objects and trying to create them", "undeleting ConfigMap/root: 1 of 3 restored", "undeleting ConfigMap/root: 3 restored, 2 of them still on hold"}
	if !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}

// skipping is a fake clock whose timers fire at once.
type skipping struct{ *clocktesting.FakeClock }

func (s skipping) After(d time.Duration) <-chan time.Time {
	c := s.FakeClock.After(d)
	s.Step(d)
	return c
}

// TestProgressOnAPipe: nothing is printed in the first two seconds, and then a line from time to
// time.
func TestProgressOnAPipe(t *testing.T) {
	out := &lines{}
	now := clocktesting.NewFakeClock(noon)
	p := newProgress(out, now)
	defer p.end()
	p.show("1 of 3")
	step := func(d time.Duration, want string) {
		t.Helper()
		for !now.HasWaiters() {
			<-time.After(time.Millisecond)
		}
		now.Step(d)
		for end := time.Now().Add(10 * time.Second); out.String() != want; {
			if time.Now().After(end) {
				t.Fatalf("%q, want %q", out.String(), want)
			}
			<-time.After(time.Millisecond)
		}
	}
	step(progressAfter-time.Millisecond, "")
	step(time.Millisecond, "1 of 3 (2s)\n")
	p.show("2 of 3")
	step(progressEvery, "1 of 3 (2s)\n2 of 3 (7s)\n")
	p.end()
	now.Step(time.Minute)
	if out.String() != "1 of 3 (2s)\n2 of 3 (7s)\n" {
		t.Errorf("after the end: %q", out.String())
	}
}

// lines is a buffer that can be read while it is written.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}
