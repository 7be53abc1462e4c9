// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDetachContent: a failure is left to Release.
func TestDetachContent(t *testing.T) {
	s := newStageTest(t, testPod())
	for _, err := range []error{errors.New("busy"), nil} {
		s.memory.ContentDetached = false
		s.cri.fail["DetachContent"] = err
		s.do(Action{Kind: DetachContent})
		if diff := cmp.Diff([]string{"DetachContent"}, s.cri.took()); diff != "" {
			t.Errorf("%v: calls (-want +got):\n%s", err, diff)
		}
		if !s.memory.ContentDetached || len(s.memory.Failures) > 0 {
			t.Errorf("%v: detached %t, failures %v", err, s.memory.ContentDetached, s.memory.Failures)
		}
		if events := s.takeEvents(); len(events) > 0 {
			t.Errorf("%v: events %v", err, events)
		}
	}
}
