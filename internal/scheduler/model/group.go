// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Group is a PodGroup with its pods.
type Group struct {
	// Object is nil as long as there are only pods.
	Object *schedulingv1beta1.PodGroup
	// Scheduled is set once the group has been scheduled, and stays set.
	Scheduled bool
	// pods has the pods that have not ended, pending ones and those on nodes.
	pods map[types.UID]*Pod
}

// MinCount returns how many pods must be on nodes before any of them is bound.
func (g *Group) MinCount() int {
	if gang := g.Object.Spec.SchedulingPolicy.Gang; gang != nil {
		return int(gang.MinCount)
	}
	return 1
}

// Priority returns the priority of the group. Its pods must have the same one.
func (g *Group) Priority() int32 { return ptr.Deref(g.Object.Spec.Priority, 0) }

// ObjectOf returns the PodGroup of a pod; nil if the pod is in none, or it does not exist.
func (c *Cluster) ObjectOf(pod *Pod) *schedulingv1beta1.PodGroup {
	if g := c.groups[pod.Group]; pod.IsInGroup() && g != nil {
		return g.Object
	}
	return nil
}

// IsDisruptedAsOne reports whether preemption must remove all pods of the group, or none.
func (g *Group) IsDisruptedAsOne() bool {
	return g.Object.Spec.DisruptionMode != nil && g.Object.Spec.DisruptionMode.All != nil
}

// Len returns the number of pods.
func (g *Group) Len() int { return len(g.pods) }

// All iterates over the pods, in no order.
func (g *Group) All() iter.Seq[*Pod] { return maps.Values(g.pods) }

// Pods returns the pods, by name.
func (g *Group) Pods() []*Pod {
	pods := slices.AppendSeq(make([]*Pod, 0, len(g.pods)), g.All())
	slices.SortFunc(pods, func(a, b *Pod) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return pods
}

// Group returns a group that has its object or pods; nil if there is none.
func (c *Cluster) Group(key types.NamespacedName) *Group { return c.groups[key] }

func (c *Cluster) group(key types.NamespacedName) *Group {
	if c.groups[key] == nil {
		c.groups[key] = &Group{pods: map[types.UID]*Pod{}}
	}
	return c.groups[key]
}

// SetGroup adds or updates a PodGroup, and returns its former object, or nil.
func (c *Cluster) SetGroup(object *schedulingv1beta1.PodGroup) *schedulingv1beta1.PodGroup {
	g := c.group(Key(object))
	before := g.Object
	if before != nil && before.UID != object.UID {
		g.Scheduled = false
	}
	g.Object = object
	g.Scheduled = g.Scheduled || meta.IsStatusConditionTrue(object.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	return before
}

// RemoveGroup removes a PodGroup. Its pods remain.
func (c *Cluster) RemoveGroup(key types.NamespacedName) {
	if g := c.groups[key]; g != nil {
		g.Object, g.Scheduled = nil, false
		c.dropEmpty(key)
	}
}

// Join adds or updates a pod of a group, and reports whether it was added.
func (c *Cluster) Join(pod *Pod) bool {
	if !pod.IsInGroup() {
		return false
	}
	_, known := c.membership[pod.UID]
	c.membership[pod.UID] = pod.Group
	c.group(pod.Group).pods[pod.UID] = pod
	return !known
}

// Leave removes a pod from its group, and returns the key of the group.
func (c *Cluster) Leave(pod types.UID) types.NamespacedName {
	key, found := c.membership[pod]
	if found {
		delete(c.membership, pod)
		delete(c.groups[key].pods, pod)
		c.dropEmpty(key)
	}
	return key
}

func (c *Cluster) dropEmpty(key types.NamespacedName) {
	if g := c.groups[key]; g.Object == nil && len(g.pods) == 0 {
		delete(c.groups, key)
	}
}

// Placed returns the pods of a group that are on nodes.
func (c *Cluster) Placed(g *Group) []*Pod {
	return slices.DeleteFunc(g.Pods(), func(pod *Pod) bool { return c.NodeOf(pod.UID) == "" })
}

// PriorityOf returns the priority of a pod as a victim of preemption: that of its group, if it is in
// one.
func (c *Cluster) PriorityOf(pod *Pod) int32 {
	if g := c.groups[pod.Group]; pod.IsInGroup() && g != nil && g.Object != nil {
		return g.Priority()
	}
	return pod.Priority
}
