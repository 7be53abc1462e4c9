// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// victim has the pods that a preemption removes together: one, or all of a group that is disrupted as one.
type victim struct {
	pods     []*model.Pod
	priority int32
	inGroup  bool
}

// victimsOn returns what a preemptor of a priority may remove from nodes. A group that is disrupted
// as one has pods on other nodes as well.
func (m *machine) victimsOn(nodes []*model.Node, priority int32) []victim {
	var victims []victim
	seen := map[types.NamespacedName]bool{}
	for _, node := range nodes {
		for _, pod := range node.Pods {
			v := m.victimOf(pod)
			if v.priority >= priority || len(v.pods) > 1 && seen[pod.Group] {
				continue
			}
			if len(v.pods) > 1 {
				seen[pod.Group] = true
			}
			victims = append(victims, v)
		}
	}
	return victims
}

func (m *machine) victimOf(pod *model.Pod) victim {
	v := victim{pods: []*model.Pod{pod}, priority: m.cluster.PriorityOf(pod), inGroup: pod.IsInGroup()}
	if !v.inGroup {
		return v
	}
	if g := m.cluster.Group(pod.Group); g != nil && g.Object != nil && g.IsDisruptedAsOne() {
		if placed := m.cluster.Placed(g); len(placed) > 0 {
			v.pods = placed
		}
	}
	return v
}

// compareImportance orders the more important victim first: by higher priority, groups before other
// pods, by more pods, then by longer running time.
func compareImportance(a, b victim) int {
	rank := func(v victim) int {
		if v.inGroup {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(b.priority, a.priority),
		cmp.Compare(rank(b), rank(a)),
		cmp.Compare(len(b.pods), len(a.pods)),
		earliestStart(a.pods).Compare(earliestStart(b.pods)),
	)
}

// earliestStart returns when the first of some pods was started.
func earliestStart(pods []*model.Pod) time.Time {
	first := startTime(pods[0])
	for _, pod := range pods[1:] {
		if start := startTime(pod); start.Before(first) {
			first = start
		}
	}
	return first
}

// protectedVictim is a victim with pods whose disruption a budget does not allow.
type protectedVictim struct {
	victim
	violations int
}

// split divides victims into those whose disruption a budget does not allow, and the others. Each pod
// uses one allowed disruption of its budgets.
func split(victims []victim, budgets []*policyv1.PodDisruptionBudget) (protected []protectedVictim, others []victim) {
	allowed := make([]int32, len(budgets))
	for i, budget := range budgets {
		allowed[i] = budget.Status.DisruptionsAllowed
	}
	for _, v := range victims {
		violations := 0
		for _, pod := range v.pods {
			if violates(pod, budgets, allowed) {
				violations++
			}
		}
		if violations > 0 {
			protected = append(protected, protectedVictim{v, violations})
		} else {
			others = append(others, v)
		}
	}
	return protected, others
}

// violates uses one allowed disruption of each budget of a pod, and reports whether one had none left.
func violates(pod *model.Pod, budgets []*policyv1.PodDisruptionBudget, allowed []int32) bool {
	violates := false
	for i, budget := range budgets {
		if covers(budget, pod) {
			allowed[i]--
			violates = violates || allowed[i] < 0
		}
	}
	return violates
}

// covers reports whether a budget selects a pod whose disruption it has not counted yet. An empty
// selector selects no pods here.
func covers(budget *policyv1.PodDisruptionBudget, pod *model.Pod) bool {
	if budget.Namespace != pod.Namespace || len(pod.Labels) == 0 {
		return false
	}
	selector := model.Selector(budget.Spec.Selector)
	if selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, known := budget.Status.DisruptedPods[pod.Name]
	return !known
}

// podsOf returns the pods of victims, the more important ones first.
func podsOf(victims []victim) []*model.Pod {
	slices.SortFunc(victims, compareImportance)
	var pods []*model.Pod
	for _, v := range victims {
		pods = append(pods, v.pods...)
	}
	return pods
}
