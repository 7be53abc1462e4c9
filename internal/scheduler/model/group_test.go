// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestGroups(t *testing.T) {
	c := NewCluster()
	key := types.NamespacedName{Namespace: "n", Name: "g"}
	member := func(name string) *Pod {
		return NewPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)},
			Spec:       v1.PodSpec{Priority: new(int32(1)), SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: new("g")}},
		})
	}
	object := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "g", UID: "first"}, Spec: schedulingv1beta1.PodGroupSpec{Priority: new(int32(7))}}
	a, b := member("a"), member("b")
	if !c.Join(b) || !c.Join(a) || c.Join(member("a")) || c.Join(NewPod(&v1.Pod{})) {
		t.Error("Join does not report what it added")
	}
	if priority := c.PriorityOf(a); priority != 1 {
		t.Errorf("priority %d without a PodGroup", priority)
	}
	c.SetGroup(object)
	c.Place(b, "node")
	g := c.Group(key)
	if placed := c.Placed(g); g.Len() != 2 || g.Pods()[0].Name != "a" || len(placed) != 1 || placed[0] != b || g.MinCount() != 1 {
		t.Errorf("%v, placed %v", g.Pods(), placed)
	}
	if priority := c.PriorityOf(a); priority != 7 {
		t.Errorf("priority %d", priority)
	}

	// A group that was scheduled remains so, until another one takes its name.
	g.Scheduled = true
	if c.SetGroup(object.DeepCopy()); !g.Scheduled {
		t.Error("the group is not scheduled any more")
	}
	other := object.DeepCopy()
	other.UID = "second"
	if c.SetGroup(other); g.Scheduled {
		t.Error("another group is scheduled")
	}

	c.RemoveGroup(key)
	if c.Group(key) == nil || c.Leave("a") != key || c.Leave("b") != key || c.Leave("b") != (types.NamespacedName{}) {
		t.Error("the pods have left too early or too late")
	}
	if c.Group(key) != nil || len(c.membership) > 0 {
		t.Error("the group is kept without object and pods")
	}
}
