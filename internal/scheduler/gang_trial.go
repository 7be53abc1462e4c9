// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// trial places the pods of a group in the model of the cluster, one after the other. Until its
// placements are bound, it can be undone.
type trial struct {
	*machine
	attempts []attempt
	placed   []placement
}

// attempt is the attempt to place one pod of a group.
type attempt struct {
	item *queue.Item
	// on is the placement of the pod; nil if it fits on no node, for the reason in message.
	on      *placement
	message string
	// filters are those to wake the pod: they rejected it, or would have to find another node for it.
	filters []string
	// claim is an allocated ResourceClaim that keeps the pod from all nodes, and shared one that only the
	// group uses.
	claim, shared *resourcev1.ResourceClaim
	// err is an error that ended the attempt of the whole group.
	err error
}

// placement is a pod on a node.
type placement struct {
	pod         *model.Pod
	node        string
	reservation *model.Reservation
	// nomination is the pod's nominated node before.
	nomination string
}

// run tries pods until all were tried, or too few are left.
func (t *trial) run(members []*queue.Item, q quorum) verdict {
	state, reason := q.outcome()
	if state == rejected {
		return verdict{rejected, []string{unschedulableGroup, reason}}
	}
	for _, item := range members {
		a := t.try(item)
		t.attempts = append(t.attempts, a)
		if a.err != nil {
			return verdict{failed, []string{"failed to schedule other pod from a pod group: " + a.err.Error()}}
		}
		q.remaining--
		if a.on != nil {
			q.scheduled++
		}
		if state, reason = q.outcome(); state == rejected {
			return verdict{rejected, []string{reason}}
		}
	}
	if len(t.placed) == 0 {
		return verdict{rejected, []string{unschedulableGroup}}
	}
	return verdict{outcome: scheduled}
}

// try tries to place one pod.
func (t *trial) try(item *queue.Item) attempt {
	a := attempt{item: item}
	if len(t.cluster.Nodes()) == 0 {
		a.message = "no nodes available to schedule pods"
		return a
	}
	c := t.newCycle(item.Pod)
	node := c.place()
	switch {
	case c.diagnosis.failure != nil:
		a.err = c.diagnosis.failure
	case node == nil:
		a.message, a.filters = c.diagnosis.String(), c.diagnosis.filters
		a.claim, a.shared = c.checks.unavailable(item.Pod.UID), c.checks.unavailable(t.cluster.ObjectOf(item.Pod).UID)
	default:
		a.filters = c.checks.filters()
		a.on, a.err = t.place(item.Pod, node, c.checks.reserve(node))
	}
	return a
}

// filters returns the names of the filters that apply to the pod.
func (cs checks) filters() []string {
	var names []string
	for i := range cs {
		names = append(names, cs[i].filter)
	}
	return names
}

// place puts a pod on a node.
func (t *trial) place(pod *model.Pod, node *model.Node, r *model.Reservation) (*placement, error) {
	p := placement{pod: pod, node: node.Name, nomination: t.cluster.Nomination(pod.UID)}
	t.cluster.Nominate(pod, "")
	t.cluster.Place(pod, node.Name)
	if r != nil {
		if err := t.cluster.Reserve(r, pod.UID, node.Name); err != nil {
			t.cluster.Remove(pod.UID)
			t.cluster.Nominate(pod, p.nomination)
			return nil, err
		}
		p.reservation = r
	}
	t.placed = append(t.placed, p)
	return &p, nil
}

// undo takes all pods back.
func (t *trial) undo() {
	for _, p := range slices.Backward(t.placed) {
		if p.reservation != nil {
			t.cluster.Release(p.reservation, p.pod.UID)
		}
		t.cluster.Remove(p.pod.UID)
		t.cluster.Nominate(p.pod, p.nomination)
	}
	t.placed = nil
}

// repeat places pods as another trial did, and reports whether they still fit.
func (t *trial) repeat(placements []placement) bool {
	for _, p := range placements {
		c := t.newCycle(p.pod)
		i := slices.IndexFunc(c.nodes, func(node *model.Node) bool { return node.Name == p.node })
		if i < 0 {
			return false
		}
		node := c.nodes[i]
		if _, rejection := c.runFilters(node); rejection != nil {
			return false
		}
		if _, err := t.place(p.pod, node, c.checks.reserve(node)); err != nil {
			return false
		}
	}
	return true
}
