// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// groupReport has the writes of a decision about a PodGroup.
type groupReport struct {
	object    *schedulingv1beta1.PodGroup
	condition metav1.Condition
	// preempt has the victims of the group; nil if there are none. members are its pending pods.
	preempt *preemption
	members []*model.Pod
	// release are claims of the group, which does not fit.
	release groupRelease
}

// tryGroup tries to place the pending pods of a group, of which item is one. The decisions are
// reports.
func (m *machine) tryGroup(item *queue.Item) {
	key := item.Pod.Group
	members := m.takeMembers(item)
	defer m.countGroup(key)
	if m.isGated(item.Pod) {
		// It became gated after it was queued.
		for _, item := range members {
			m.queue.Return(item)
		}
		return
	}
	group := m.cluster.Group(key)
	placed := m.cluster.Placed(group)
	if err := validateGroup(group.Priority(), podsOfItems(members), placed); err != nil {
		m.failGroup(group, members, nil, verdict{failed, []string{err.Error()}})
		return
	}
	q := quorum{min: group.MinCount(), scheduled: len(placed), remaining: len(members)}
	t := &trial{machine: m}
	switch result := t.run(members, q); result.outcome {
	case scheduled:
		m.keepGroup(group, t)
	case failed:
		t.undo()
		m.failGroup(group, members, t.attempts, result)
	default:
		t.undo()
		m.rejectGroup(group, members, t.attempts, result, q)
	}
}

// takeMembers takes the other pending pods of an item's group from the queue, and returns all in the
// order in which they are tried.
func (m *machine) takeMembers(item *queue.Item) []*queue.Item {
	members := []*queue.Item{item}
	for _, pod := range m.cluster.Group(item.Pod.Group).Pods() {
		if other := m.queue.Take(pod.UID); other != nil {
			members = append(members, other)
		}
	}
	slices.SortFunc(members, queue.CompareMembers)
	return members
}

func podsOfItems(items []*queue.Item) []*model.Pod {
	pods := make([]*model.Pod, 0, len(items))
	for _, item := range items {
		pods = append(pods, item.Pod)
	}
	return pods
}

// keepGroup binds the pods of a successful trial. The others are tried again at once, and preempt if
// none of them fits then.
func (m *machine) keepGroup(group *model.Group, t *trial) {
	for i := range t.attempts {
		a := &t.attempts[i]
		if a.on == nil {
			m.reports = append(m.reports, decision{pod: a.item.Pod, reason: v1.PodReasonUnschedulable, message: a.message})
			m.queue.Return(a.item)
		}
	}
	for i := range t.attempts {
		if a := &t.attempts[i]; a.on != nil {
			m.binding[a.item.Pod.UID] = &binding{item: a.item, node: a.on.node, reservation: a.on.reservation}
			m.wake(plugin.Event{Kind: plugin.PodPlaced, Pod: a.item.Pod})
			m.reports = append(m.reports, decision{pod: a.item.Pod, node: a.on.node, reservation: a.on.reservation})
		}
	}
	m.reportGroup(group, nil, nil, metav1.ConditionTrue, "Scheduled", "")
}

// failGroup retries the pods of a group after an error, which is their own or that of the group.
func (m *machine) failGroup(group *model.Group, members []*queue.Item, attempts []attempt, result verdict) {
	for i, item := range members {
		message, none := result.message(), ""
		if i < len(attempts) && attempts[i].err != nil {
			message = attempts[i].err.Error()
		}
		m.reports = append(m.reports, decision{pod: item.Pod, reason: v1.PodReasonSchedulerError, message: message, nominate: &none})
		m.cluster.Nominate(item.Pod, none)
		m.queue.Retry(item)
	}
	m.reportGroup(group, members, nil, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonSchedulerError, result.message())
}

// rejectGroup parks the pods of a group that does not fit, after it has tried preemption.
func (m *machine) rejectGroup(group *model.Group, members []*queue.Item, attempts []attempt, result verdict, q quorum) {
	release := m.releaseFor(group, attempts)
	p := m.preemptForGroup(group, members, q)
	if p.kept != nil {
		for _, item := range members {
			i := slices.IndexFunc(p.kept.placed, func(placed placement) bool { return placed.pod == item.Pod })
			if i < 0 {
				m.queue.Return(item)
				continue
			}
			p.kept.attempts = append(p.kept.attempts, attempt{item: item, on: &p.kept.placed[i]})
		}
		m.keepGroup(group, p.kept)
		return
	}
	untried, final := result.message(), result
	for _, reason := range append(release.reasons(attempts), "pod group preemption: "+p.text) {
		final = final.with(reason)
	}
	for i, item := range members {
		a := attempt{item: item, message: untried, filters: rejectors(attempts)}
		if i < len(attempts) {
			a = attempts[i]
		}
		d := decision{pod: item.Pod, reason: v1.PodReasonUnschedulable, message: a.message, deallocate: a.claim}
		if a.on != nil {
			none := ""
			d.message, d.nominate = unschedulableGroup+", "+final.message(), &none
			if p.nominate != nil {
				d.message = final.message()
			}
		}
		if node, nominated := p.nominate[item.Pod.UID]; nominated {
			d.nominate = &node
		}
		if d.nominate != nil {
			m.cluster.Nominate(item.Pod, *d.nominate)
		}
		m.queue.Park(item, a.filters)
		m.release(d.deallocate)
		m.reports = append(m.reports, d)
	}
	for _, victim := range p.victims {
		m.victims[victim.UID] = true
	}
	m.release(release.deallocate)
	m.release(release.unreserve)
	m.reportGroup(group, members, p.victims, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable, final.message()).release = release
}

// rejectors returns the filters that rejected pods of a group. Pods that were not tried wait for what
// wakes those.
func rejectors(attempts []attempt) []string {
	names := map[string]bool{}
	for i := range attempts {
		if attempts[i].on == nil {
			for _, name := range attempts[i].filters {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// reportGroup adds a decision about a group, and returns it. Once a group is scheduled, its condition stays
// true.
func (m *machine) reportGroup(group *model.Group, members []*queue.Item, victims []*model.Pod, status metav1.ConditionStatus, reason, message string) *groupReport {
	report := &groupReport{object: group.Object, members: podsOfItems(members)}
	if status == metav1.ConditionTrue || !group.Scheduled {
		report.condition = metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message}
	}
	if len(victims) > 0 {
		report.preempt = &preemption{node: wholeCluster, victims: victims}
	}
	group.Scheduled = group.Scheduled || status == metav1.ConditionTrue
	m.reports = append(m.reports, decision{group: report})
	return report
}
