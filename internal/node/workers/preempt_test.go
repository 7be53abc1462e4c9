// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// A new pod that is refused evicts what the decision names. The next agent neither runs the victims nor evicts them twice.
func TestPreemption(t *testing.T) {
	root := t.TempDir()
	victim := asking("victim", "2", 1)
	for _, restarted := range []bool{false, true} {
		f := newFixture(t, root)
		var beside []string
		f.PreemptWith(func(_ context.Context, _ *v1.Pod, others []*v1.Pod, refused *pod.Refusal) ([]*v1.Pod, *pod.Refusal) {
			if refused.Reason != "OutOfcpu" {
				t.Errorf("refused with %s", refused.Reason)
			}
			for _, other := range others {
				beside = append(beside, other.Name)
			}
			return others, nil
		})
		f.see(victim)
		f.Update(asking("critical", "1", 1), false)
		if !f.IsEvicting("victim") || f.IsEvicting("critical") || f.worker("critical").Rejected() {
			t.Error("the victim is not evicted for the critical pod")
		}
		if restarted {
			if len(beside) > 0 {
				t.Errorf("considered %v, which are evicted already", beside)
			}
			continue
		}
		if event := <-f.events.Events; event != "Warning Preempting Preempted in order to admit critical pod" {
			t.Errorf("event %q", event)
		}
		stored := pod.LoadEviction(f.table.parts.Host.Layout, "victim")
		if stored == nil || stored.Reason != "Preempting" || !stored.Disrupts || stored.GraceSeconds != 30 ||
			!strings.HasPrefix(stored.ConditionMessage, "Pod was preempted") {
			t.Errorf("stored %+v", stored)
		}
	}
}
