// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"maps"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// setGroup adds or updates a PodGroup.
func (m *machine) setGroup(object *schedulingv1beta1.PodGroup) {
	before := m.cluster.SetGroup(object)
	m.groupChanged(model.Key(object), before == nil || !equality.Semantic.DeepEqual(before.Spec, object.Spec))
}

func (m *machine) removeGroup(object *schedulingv1beta1.PodGroup) {
	m.cluster.RemoveGroup(model.Key(object))
	m.countGroup(model.Key(object))
}

// groupChanged releases the pods of a group that are no longer gated. With wake, the change may make
// parked ones schedulable.
func (m *machine) groupChanged(key types.NamespacedName, wake bool) {
	m.countGroup(key)
	group := m.cluster.Group(key)
	if awaitsQuorum(group) {
		return
	}
	for _, pod := range group.Pods() {
		m.queue.Recheck(pod.UID)
		if wake {
			m.queue.WakeOne(pod.UID)
		}
	}
}

// awaitsQuorum reports whether a group has no object or too few pods.
func awaitsQuorum(group *model.Group) bool {
	return group == nil || group.Object == nil || group.Len() < group.MinCount()
}

// isGated reports whether a pod must not be tried, its own scheduling gates aside. A pod waits for its
// PodGroup, for the quorum of a gang, and for all other pods of the group that are gated.
func (m *machine) isGated(pod *model.Pod) bool {
	if plugin.DevicesMissing(m.cluster, pod) != nil {
		return true
	}
	if !pod.IsInGroup() {
		return false
	}
	group := m.cluster.Group(pod.Group)
	if awaitsQuorum(group) {
		return true
	}
	for other := range group.All() {
		if m.queue.Get(other.UID) != nil && (len(other.Spec.SchedulingGates) > 0 || plugin.DevicesMissing(m.cluster, other) != nil) {
			return true
		}
	}
	return false
}

// countGroup records whether some, but too few, pods of a group are on nodes. A restart may have
// interrupted their binding.
func (m *machine) countGroup(key types.NamespacedName) {
	delete(m.incomplete, key)
	group := m.cluster.Group(key)
	if group == nil || group.Object == nil {
		return
	}
	placed := 0
	for pod := range group.All() {
		if m.cluster.NodeOf(pod.UID) != "" {
			placed++
		}
	}
	if placed > 0 && placed < group.MinCount() {
		m.incomplete[key] = true
	}
}

// take takes the next pod to try from the queue; nil if there is none. An incomplete gang goes before
// other pods of its priority, so that it is not left incomplete because these take its room.
func (m *machine) take() *queue.Item {
	if len(m.incomplete) == 0 {
		return m.queue.Pop()
	}
	first := m.queue.First()
	if first == nil {
		return nil
	}
	keys := slices.Collect(maps.Keys(m.incomplete))
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range keys {
		for _, pod := range m.cluster.Group(key).Pods() {
			if m.queue.IsActive(pod.UID) && pod.Priority >= first.Pod.Priority {
				return m.queue.Take(pod.UID)
			}
		}
	}
	return m.queue.Pop()
}
