// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// The pending pods of a PodGroup are tried together (KEP-4671). They are placed one after the other,
// each with the earlier ones on their nodes. If too few of them fit, all are taken back, and none is
// bound. The machine decides about all of them before anything is written, so that no pod needs to
// wait for others between decision and binding (upstream: Permit).

// unschedulableGroup begins the messages of a group that does not fit.
const unschedulableGroup = "pod group is unschedulable"

// outcome is the end of an attempt to place a group.
type outcome int

const (
	// scheduled: enough pods are placed.
	scheduled outcome = iota
	// undecided: there are pods left, and enough of them may be placed.
	undecided
	// rejected: too few pods can be placed.
	rejected
	// failed: an error ended the attempt.
	failed
)

// quorum counts the pods of a group during an attempt.
type quorum struct{ min, scheduled, remaining int }

// outcome returns whether the group can still be scheduled, and why not.
func (q quorum) outcome() (outcome, string) {
	switch {
	case q.remaining+q.scheduled < q.min:
		return rejected, fmt.Sprintf("minCount (%d) cannot be satisfied: %d scheduled, %d remaining", q.min, q.scheduled, q.remaining)
	case q.scheduled < q.min:
		return undecided, fmt.Sprintf("minCount (%d) is not yet satisfied: %d scheduled, %d remaining", q.min, q.scheduled, q.remaining)
	default:
		return scheduled, ""
	}
}

// verdict is the result of an attempt for the whole group.
type verdict struct {
	outcome
	reasons []string
}

func (v verdict) message() string { return strings.Join(v.reasons, ", ") }

// with returns the verdict with a further reason.
func (v verdict) with(reason string) verdict {
	v.reasons = append(v.reasons[:len(v.reasons):len(v.reasons)], reason)
	return v
}

// validateGroup returns an error for pods that cannot be tried together. The first pending pod
// determines the scheduler and the preemption policy of the group.
func validateGroup(priority int32, pending, placed []*model.Pod) error {
	scheduler, policy := pending[0].Spec.SchedulerName, preemptionPolicy(pending[0])
	for _, pods := range [][]*model.Pod{pending, placed} {
		for _, pod := range pods {
			switch {
			case pod.Spec.SchedulerName != scheduler:
				return fmt.Errorf("all pods in a single pod group should have the same .spec.schedulerName set, got: %q and %q", pod.Spec.SchedulerName, scheduler)
			case pod.Priority != priority:
				return fmt.Errorf("all pods in a single pod group should have the same priority as the pod group's priority, got %d and %d", pod.Priority, priority)
			case preemptionPolicy(pod) != policy:
				return fmt.Errorf("all pods in a single pod group should have the same preemption policy, got %v and %v", preemptionPolicy(pod), policy)
			}
		}
	}
	return nil
}

func preemptionPolicy(pod *model.Pod) v1.PreemptionPolicy {
	if policy := pod.Spec.PreemptionPolicy; policy != nil {
		return *policy
	}
	return v1.PreemptLowerPriority
}
