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
		return c.cluster.PriorityOf(pod) < c.pod.Priority && (c.victims[pod.UID] || preempted(pod))
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
	lower := c.victimsOn([]*model.Node{original}, c.pod.Priority)
	if len(lower) == 0 {
		return nil, []string{"No preemption victims found for incoming pod"}
	}
	trial := *c
	trial.checks = c.checks.clone()
	node := original.Clone()
	for _, v := range lower {
		trial.move(v, node, -1)
	}
	if _, rejection := trial.runFilters(node); rejection != nil {
		return nil, rejection.Reasons
	}
	slices.SortFunc(lower, compareImportance)
	protected, others := split(lower, budgets)
	p := &preemption{node: original.Name}
	var victims []victim
	for _, v := range protected {
		if !trial.reprieve(v.victim, node) {
			victims = append(victims, v.victim)
			p.violations += v.violations
		}
	}
	for _, v := range others {
		if !trial.reprieve(v, node) {
			victims = append(victims, v)
		}
	}
	if len(victims) == 0 {
		return nil, []string{fmt.Sprintf("expected at least one victim pod on node %q", original.Name)}
	}
	p.victims = podsOf(victims)
	return p, nil
}

// reprieve puts a victim back on a node if the cycle's pod still fits.
func (c *cycle) reprieve(v victim, node *model.Node) bool {
	c.move(v, node, 1)
	if _, rejection := c.runFilters(node); rejection == nil {
		return true
	}
	c.move(v, node, -1)
	return false
}

// move adds a victim to a copy of its node (1), or removes it (-1). Of its pods on other nodes, only
// the checks learn.
func (c *cycle) move(v victim, node *model.Node, delta int) {
	for _, pod := range v.pods {
		on := c.cluster.NodeOf(pod.UID)
		if on == node.Name {
			c.checks.move(pod, node, delta)
		} else if other := c.cluster.Node(on); other != nil {
			c.checks.span(pod, other, delta)
		}
	}
}

// startTime returns when a pod was started. A pod that was not started counts as the newest.
func startTime(pod *model.Pod) time.Time {
	if pod.Status.StartTime == nil {
		return time.Unix(math.MaxInt32, 0)
	}
	return pod.Status.StartTime.Time
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
		earliestStart(mostImportant(b.victims)).Compare(earliestStart(mostImportant(a.victims))),
	)
}

// mostImportant returns the pods with the priority of the first one, the highest of sorted victims.
func mostImportant(pods []*model.Pod) []*model.Pod {
	end := slices.IndexFunc(pods, func(pod *model.Pod) bool { return pod.Priority != pods[0].Priority })
	if end < 0 {
		return pods
	}
	return pods[:end]
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
