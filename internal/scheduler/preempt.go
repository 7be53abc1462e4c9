// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// preemption is the eviction of less important pods from a node.
type preemption struct {
	node    string
	victims []*model.Pod
	// demoted are less important pods that were nominated to the node.
	demoted []*model.Pod
	// violations is how many victims a disruption budget protects.
	violations int
}

// preempt finds the node on which the pod would fit with the least harmful preemption. It returns
// the preemption, or nil; the node to nominate, where "" clears the nomination and nil leaves it
// unchanged; and a message.
func (c *cycle) preempt() (*preemption, *string, string) {
	if policy := c.pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return nil, nil, "not eligible due to preemptionPolicy=Never."
	}
	if c.awaitsVictims() {
		return nil, nil, "not eligible due to a terminating pod on the nominated node."
	}
	budgets := c.budgets()
	failure := diagnosis{nodes: c.diagnosis.nodes}
	var best *preemption
	candidates := 0
	for _, node := range c.diagnosis.resolvable {
		p, reasons := c.preemptOn(node, budgets)
		if p == nil {
			for _, reason := range reasons {
				failure.count(reason, 1)
			}
			continue
		}
		if best == nil || compareHarm(p, best) < 0 {
			best = p
		}
		if candidates++; candidates == enoughNodes(len(c.diagnosis.resolvable)) && best.violations == 0 {
			break
		}
	}
	if best == nil {
		none := ""
		failure.count("Preemption is not helpful for scheduling", c.diagnosis.nodes-len(c.diagnosis.resolvable))
		return nil, &none, failure.String()
	}
	for _, pod := range c.cluster.Nominated(best.node) {
		if pod.Priority < c.pod.Priority {
			best.demoted = append(best.demoted, pod)
		}
	}
	text := fmt.Sprintf("found a potential placement for pod on node %s, preempting %d victims", best.node, len(best.victims))
	return best, &best.node, text
}

// awaitsVictims reports whether victims of this pod are still terminating on its nominated node.
// Until they have ended, it preempts no other pods.
func (c *cycle) awaitsVictims() bool {
	node := c.cluster.Node(c.cluster.Nomination(c.pod.UID))
	if node == nil || c.isUnresolvable(node) {
		return false
	}
	return slices.ContainsFunc(node.Pods, func(pod *model.Pod) bool {
		return pod.Priority < c.pod.Priority && (c.victims[pod.UID] || preempted(pod))
	})
}

// isUnresolvable reports whether preemption on a node would not help the pod.
func (c *cycle) isUnresolvable(node *model.Node) bool {
	_, rejection := c.runFilters(node)
	return rejection != nil && rejection.Unresolvable
}

// preempted reports whether a pod is being deleted because of a preemption.
func preempted(pod *model.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}

// preemptOn finds the fewest and least important victims on a node. It removes all less important
// pods, and then puts back each with which the pod still fits: first those that disruption budgets
// protect, and in each group the more important ones first. It returns nil and reasons if preemption
// does not help.
func (c *cycle) preemptOn(original *model.Node, budgets []*policyv1.PodDisruptionBudget) (*preemption, []string) {
	var lower []*model.Pod
	for _, pod := range original.Pods {
		if pod.Priority < c.pod.Priority {
			lower = append(lower, pod)
		}
	}
	if len(lower) == 0 {
		return nil, []string{"No preemption victims found for incoming pod"}
	}
	trial := *c
	trial.checks = c.checks.clone()
	node := original.Clone()
	for _, pod := range lower {
		trial.checks.move(pod, node, -1)
	}
	if _, rejection := trial.runFilters(node); rejection != nil {
		return nil, rejection.Reasons
	}
	slices.SortFunc(lower, compareImportance)
	protected, others := split(lower, budgets)
	p := &preemption{node: original.Name}
	for _, pod := range protected {
		if !trial.reprieve(pod, node) {
			p.victims = append(p.victims, pod)
			p.violations++
		}
	}
	for _, pod := range others {
		if !trial.reprieve(pod, node) {
			p.victims = append(p.victims, pod)
		}
	}
	slices.SortFunc(p.victims, compareImportance)
	if len(p.victims) == 0 {
		return nil, []string{fmt.Sprintf("expected at least one victim pod on node %q", original.Name)}
	}
	return p, nil
}

// reprieve puts a pod back on a node if the cycle's pod still fits.
func (c *cycle) reprieve(pod *model.Pod, node *model.Node) bool {
	c.checks.move(pod, node, 1)
	if _, rejection := c.runFilters(node); rejection == nil {
		return true
	}
	c.checks.move(pod, node, -1)
	return false
}

// compareImportance orders the more important pod first: by higher priority, then by longer running
// time.
func compareImportance(a, b *model.Pod) int {
	if a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	return startTime(a).Compare(startTime(b))
}

// startTime returns when a pod was started. A pod that was not started counts as the newest.
func startTime(pod *model.Pod) time.Time {
	if pod.Status.StartTime == nil {
		return time.Unix(math.MaxInt32, 0)
	}
	return pod.Status.StartTime.Time
}

// split divides pods into those whose disruption a budget does not allow, and the others. Each pod
// uses one allowed disruption of its budgets.
func split(pods []*model.Pod, budgets []*policyv1.PodDisruptionBudget) (protected, others []*model.Pod) {
	allowed := make([]int32, len(budgets))
	for i, budget := range budgets {
		allowed[i] = budget.Status.DisruptionsAllowed
	}
	for _, pod := range pods {
		violates := false
		for i, budget := range budgets {
			if !covers(budget, pod) {
				continue
			}
			allowed[i]--
			violates = violates || allowed[i] < 0
		}
		if violates {
			protected = append(protected, pod)
		} else {
			others = append(others, pod)
		}
	}
	return protected, others
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

// compareHarm orders the less harmful preemption first: by fewer protected victims, a lower highest
// priority of victims, a lower sum of priorities, fewer victims, and a later start of the most
// important victims.
func compareHarm(a, b *preemption) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
		cmp.Compare(sumOfPriorities(a.victims), sumOfPriorities(b.victims)),
		cmp.Compare(len(a.victims), len(b.victims)),
		// Victims are sorted: the first has the earliest start of the most important ones.
		startTime(b.victims[0]).Compare(startTime(a.victims[0])),
	)
}

// sumOfPriorities makes every priority positive first. Otherwise a node with many victims of
// negative priority would win over one with few.
func sumOfPriorities(pods []*model.Pod) int64 {
	var sum int64
	for _, pod := range pods {
		sum += int64(pod.Priority) + math.MaxInt32 + 1
	}
	return sum
}
