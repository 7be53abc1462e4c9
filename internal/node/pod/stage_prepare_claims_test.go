// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrepareClaims(t *testing.T) {
	s := newStageTest(t, testPod())
	s.cri.fail["PrepareClaims"] = errors.New("prepare dynamic resources: DRA driver d is not registered")
	s.do(Action{Kind: PrepareClaims})
	const message = "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver d is not registered"
	failure := s.memory.Failures[OfClaims]
	if s.memory.ClaimsReady || failure.Message != message || !failure.RetryAt.Equal(caseTime.Add(retryFirst)) {
		t.Errorf("after a failure: ready %t, failure %+v", s.memory.ClaimsReady, failure)
	}
	if diff := cmp.Diff([]string{"Warning FailedPrepareDynamicResources " + message}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// A cancelled attempt records no event.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.doIn(ctx, Action{Kind: PrepareClaims})
	if events := s.takeEvents(); len(events) > 0 || s.memory.ClaimsReady {
		t.Errorf("events %v, ready %t", events, s.memory.ClaimsReady)
	}

	delete(s.cri.fail, "PrepareClaims")
	s.do(Action{Kind: PrepareClaims})
	if _, failed := s.memory.Failures[OfClaims]; !s.memory.ClaimsReady || failed {
		t.Errorf("after a success: ready %t, failures %v", s.memory.ClaimsReady, s.memory.Failures)
	}
}
