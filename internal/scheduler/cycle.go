// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// next tries to place the pod at the head of the queue and returns the decision. It returns false
// if no pod can be tried.
func (m *machine) next() (decision, bool) {
	m.expire()
	for {
		if len(m.reports) > 0 {
			report := m.reports[0]
			m.reports = m.reports[1:]
			return report, true
		}
		item := m.take()
		switch {
		case item == nil:
			return decision{}, false
		case item.Pod.IsInGroup():
			m.tryGroup(item)
		default:
			return m.try(item), true
		}
	}
}

func (m *machine) try(item *queue.Item) decision {
	if len(m.cluster.Nodes()) == 0 {
		none := ""
		m.queue.Park(item, nil)
		m.cluster.Nominate(item.Pod, none)
		return decision{pod: item.Pod, reason: v1.PodReasonUnschedulable, message: "no nodes available to schedule pods", nominate: &none}
	}
	c := m.newCycle(item.Pod)
	node := c.place()
	switch {
	case c.diagnosis.failure != nil:
		return m.failed(item, c.diagnosis.failure)
	case node != nil:
		return m.placed(item, node, c.checks.reserve(node))
	default:
		return m.rejected(item, c)
	}
}

// failed handles an error of a filter: the pod is retried after its backoff.
func (m *machine) failed(item *queue.Item, err error) decision {
	none := ""
	m.queue.Retry(item)
	m.cluster.Nominate(item.Pod, none)
	return decision{pod: item.Pod, reason: v1.PodReasonSchedulerError, message: err.Error(), nominate: &none}
}

func (m *machine) placed(item *queue.Item, node *model.Node, reservation *model.Reservation) decision {
	m.cluster.Nominate(item.Pod, "")
	m.cluster.Place(item.Pod, node.Name)
	m.binding[item.Pod.UID] = &binding{item: item, node: node.Name, reservation: reservation}
	m.wake(plugin.Event{Kind: plugin.PodPlaced, Pod: item.Pod})
	if reservation != nil {
		if err := m.cluster.Reserve(reservation, item.Pod.UID, node.Name); err != nil {
			m.notBound(item.Pod.UID, err)
			report, _ := m.next()
			return report
		}
	}
	return decision{pod: item.Pod, node: node.Name, reservation: reservation}
}

func (m *machine) rejected(item *queue.Item, c *cycle) decision {
	preempt, nominate, outcome := c.preempt()
	c.diagnosis.preemption = "preemption: " + outcome
	deallocate := c.checks.unavailable(item.Pod.UID)
	m.release(deallocate)
	if deallocate != nil {
		what := "deallocation"
		if model.IsExtended(deallocate) {
			what = "deletion"
		}
		c.diagnosis.preemption = what + " of ResourceClaim completed, " + c.diagnosis.preemption
	}
	d := decision{pod: item.Pod, reason: v1.PodReasonUnschedulable, message: c.diagnosis.String(), nominate: nominate, preempt: preempt, deallocate: deallocate}
	m.queue.Park(item, c.diagnosis.filters)
	if nominate != nil {
		m.cluster.Nominate(item.Pod, *nominate)
	}
	if preempt != nil {
		for _, victim := range preempt.victims {
			m.victims[victim.UID] = true
		}
		for _, pod := range preempt.demoted {
			m.cluster.Nominate(pod, "")
			m.queue.WakeOne(pod.UID)
		}
	}
	return d
}

// cycle is one attempt to place one pod.
type cycle struct {
	*machine
	pod       *model.Pod
	checks    checks
	nodes     []*model.Node
	diagnosis diagnosis
}

// checks are the filters' checks of one pod.
type checks []namedCheck

type namedCheck struct {
	filter string
	plugin.Check
}

// firstRejection runs the checks on a node in order, and returns the first rejection with the name
// of its filter.
func (cs checks) firstRejection(node *model.Node) (string, *plugin.Rejection) {
	for i := range cs {
		if r := cs[i].Check.Check(node); r != nil {
			return cs[i].filter, r
		}
	}
	return "", nil
}

// clone returns a copy of the checks, for preemption to add and remove pods.
func (cs checks) clone() checks {
	c := make(checks, len(cs))
	copy(c, cs)
	for i := range c {
		if s, spanning := c[i].Check.(plugin.Spanning); spanning {
			c[i].Check = s.Clone()
		}
	}
	return c
}

// move updates the checks for a pod that is added to a node (1) or removed from it (-1).
func (cs checks) move(pod *model.Pod, node *model.Node, delta int) {
	if delta > 0 {
		node.Add(pod)
	} else {
		node.Remove(pod)
	}
	cs.span(pod, node, delta)
}

// span is move for a pod on another node than the one that is checked.
func (cs checks) span(pod *model.Pod, node *model.Node, delta int) {
	for i := range cs {
		if s, spanning := cs[i].Check.(plugin.Spanning); spanning {
			s.Move(pod, node, delta)
		}
	}
}

// reserve returns what must be written before the pod is bound to a node that passed the checks; nil
// if there is nothing.
func (cs checks) reserve(node *model.Node) *model.Reservation {
	var reservation *model.Reservation
	for i := range cs {
		if r, reserves := cs[i].Check.(plugin.Reserver); reserves {
			if reservation == nil {
				reservation = &model.Reservation{}
			}
			r.Reserve(node, reservation)
		}
	}
	if reservation == nil || reservation.IsEmpty() {
		return nil
	}
	return reservation
}

// unavailable returns an allocated ResourceClaim that keeps the pod from all nodes, and has no user other
// than the given one; nil if there is none.
func (cs checks) unavailable(user types.UID) *resourcev1.ResourceClaim {
	for i := range cs {
		if d, deallocates := cs[i].Check.(plugin.Deallocator); deallocates {
			return d.Unavailable(user)
		}
	}
	return nil
}

// newCycle runs every filter for the pod, and finds the candidate nodes.
func (m *machine) newCycle(pod *model.Pod) *cycle {
	c := &cycle{machine: m, pod: pod, nodes: m.cluster.Nodes()}
	c.diagnosis.nodes = len(c.nodes)
	var only sets.Set[string]
	for _, filter := range m.filters {
		check, rejection := filter.For(m.cluster, pod)
		if rejection != nil {
			if rejection.Failure != nil {
				c.diagnosis.failure = fmt.Errorf("running PreFilter plugin %q: %w", filter.Name(), rejection.Failure)
			}
			c.diagnosis.rejectAll(filter.Name(), rejection)
			c.nodes = nil
			return c
		}
		if check == nil {
			continue
		}
		c.checks = append(c.checks, namedCheck{filter.Name(), check})
		if n, narrows := check.(plugin.Narrower); narrows && n.Nodes() != nil {
			c.diagnosis.narrowed(filter.Name())
			if only != nil {
				only = only.Intersection(n.Nodes())
			} else {
				only = n.Nodes()
			}
		}
	}
	c.narrow(only)
	return c
}

// narrow limits the candidates to the named nodes, unless the set is nil.
func (c *cycle) narrow(only sets.Set[string]) {
	if only == nil {
		return
	}
	c.nodes = nil
	for _, name := range sets.List(only) {
		if node := c.cluster.Node(name); node != nil {
			c.nodes = append(c.nodes, node)
		}
	}
	if only.Len() == 0 {
		c.diagnosis.global = fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", c.diagnosis.filters)
		return
	}
	c.diagnosis.count(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", c.diagnosis.filters), c.diagnosis.nodes-len(c.nodes))
}

// place returns the best node for the pod, or nil if the pod fits on no node.
func (c *cycle) place() *model.Node {
	if node := c.nominated(); node != nil {
		return node
	}
	feasible := c.feasible()
	switch len(feasible) {
	case 0:
		return nil
	case 1:
		return feasible[0]
	default:
		return c.best(feasible)
	}
}

// nominated returns the node on which pods were preempted for this pod, if it fits there now.
func (c *cycle) nominated() *model.Node {
	name := c.cluster.Nomination(c.pod.UID)
	if name == "" {
		return nil
	}
	for _, node := range c.nodes {
		if node.Name != name {
			continue
		}
		if _, rejection := c.runFilters(node); rejection == nil {
			return node
		}
	}
	return nil
}

// feasible returns nodes on which the pod fits: all in a small cluster, enough in a large one. The
// search continues where the last one ended, so that all nodes are considered equally often.
func (c *cycle) feasible() []*model.Node {
	enough := enoughNodes(len(c.nodes))
	var feasible []*model.Node
	tried := 0
	for range c.nodes {
		node := c.nodes[(c.start+tried)%len(c.nodes)]
		tried++
		if filter, rejection := c.runFilters(node); rejection != nil {
			if c.diagnosis.reject(filter, node, rejection); rejection.Failure != nil {
				return nil
			}
			continue
		}
		if feasible = append(feasible, node); len(feasible) == enough {
			break
		}
	}
	c.start = (c.start + tried) % c.diagnosis.nodes
	return feasible
}

// enoughNodes returns how many feasible nodes to compare: all up to a hundred, then half, and a
// share that falls to 5 % as clusters grow.
func enoughNodes(nodes int) int {
	const always = 100
	if nodes < always {
		return nodes
	}
	percent := max(50-nodes/125, 5)
	return max(nodes*percent/100, always)
}

// runFilters returns why the pod does not fit on a node, also counting the pods nominated there that
// are at least as important.
func (c *cycle) runFilters(node *model.Node) (string, *plugin.Rejection) {
	if nominated := c.nominatedOn(node.Name); len(nominated) > 0 {
		supposed, full := c.checks.clone(), node.Clone()
		for _, pod := range nominated {
			supposed.move(pod, full, 1)
		}
		if filter, rejection := supposed.firstRejection(full); rejection != nil {
			return filter, rejection
		}
	}
	// Nominated pods may never arrive, so the pod must fit without them too.
	return c.checks.firstRejection(node)
}

// nominatedOn returns the other pods that are nominated to a node and at least as important.
func (c *cycle) nominatedOn(node string) []*model.Pod {
	var pods []*model.Pod
	for _, pod := range c.cluster.Nominated(node) {
		if pod.UID != c.pod.UID && pod.Priority >= c.pod.Priority {
			pods = append(pods, pod)
		}
	}
	return pods
}

// best returns the node with the highest score. Nodes with equal scores take turns.
func (c *cycle) best(nodes []*model.Node) *model.Node {
	total, part := c.scratch(len(nodes))
	for _, score := range c.scores {
		if s, selective := score.Score.(plugin.Selective); selective && !s.Applies(c.cluster, c.pod) {
			continue
		}
		clear(part)
		score.Score.Score(c.cluster, c.pod, nodes, part)
		for i := range part {
			total[i] += score.Weight * part[i]
		}
	}
	most := total[0]
	for _, t := range total {
		most = max(most, t)
	}
	equals := nodes[:0]
	for i, node := range nodes {
		if total[i] == most {
			equals = append(equals, node)
		}
	}
	c.turn++
	return equals[c.turn%len(equals)]
}

// scratch returns zeroed buffers for the scores of n nodes.
func (m *machine) scratch(n int) (total, part []int64) {
	if cap(m.total) < n {
		m.total, m.part = make([]int64, n), make([]int64, n)
	}
	m.total, m.part = m.total[:n], m.part[:n]
	clear(m.total)
	return m.total, m.part
}
