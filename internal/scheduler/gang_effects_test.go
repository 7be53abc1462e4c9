// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (a *api) groupCondition(t *testing.T, name string) metav1.Condition {
	t.Helper()
	group, err := a.SchedulingV1beta1().PodGroups("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func TestConditionOfAPodGroup(t *testing.T) {
	a := newAPI(testNode("n", "2"), gang("g", 2), gang("h", 2))
	start(t, Options{Client: a, Gangs: true})
	for _, pod := range append(members("g", 2, "1"), members("h", 2, "1")...) {
		if _, err := a.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both groups have a condition", func() bool { return a.groupCondition(t, "g").Type != "" && a.groupCondition(t, "h").Type != "" })
	for name, want := range map[string]metav1.Condition{
		"g": {Status: metav1.ConditionTrue, Reason: "Scheduled"},
		"h": {Status: metav1.ConditionFalse, Reason: "Unschedulable", Message: "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, " + noVictims},
	} {
		got := a.groupCondition(t, name)
		if got.LastTransitionTime.IsZero() {
			t.Errorf("%s: no time", name)
		}
		if diff := cmp.Diff(want, metav1.Condition{Status: got.Status, Reason: got.Reason, Message: got.Message}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"g0", "g1"} {
		eventually(t, name+" is bound", func() bool { return a.pod(t, name).Spec.NodeName == "n" })
	}
	if a.pod(t, "h0").Spec.NodeName != "" || a.pod(t, "h1").Spec.NodeName != "" {
		t.Error("a pod of a gang that does not fit is bound")
	}
}

func TestVictimsOfAGangAreDeleted(t *testing.T) {
	a := newAPI(testNode("n", "2"), gang("g", 2, urgent(5)), testPod("x", "1", onNode("n")), testPod("y", "1", onNode("n"), priority(9)))
	start(t, Options{Client: a, Gangs: true})
	for _, pod := range members("g", 2, "500m", priority(5)) {
		if _, err := a.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"g0", "g1"} {
		eventually(t, name+" is bound", func() bool { return a.pod(t, name).Spec.NodeName == "n" })
	}
	var notes []string
	eventually(t, "the event is written", func() bool {
		notes = nil
		list, err := a.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range list.Items {
			if event.Reason == "Preempted" {
				notes = append(notes, event.Regarding.Name+": "+event.Note+" for "+event.Related.Kind)
			}
		}
		return len(notes) > 0
	})
	if want := []string{"x: Preempted by podgroup g on node cluster for PodGroup"}; !cmp.Equal(notes, want) {
		t.Errorf("%q", notes)
	}
}

// TestGroupsAreIgnored: without the API of PodGroups, pods are scheduled as if they had no group.
func TestGroupsAreIgnored(t *testing.T) {
	a := newAPI(testNode("n", "1"), testPod("g0", "1", inGroup("g")))
	start(t, Options{Client: a})
	eventually(t, "the pod is bound", func() bool { return a.pod(t, "g0").Spec.NodeName == "n" })
}

// TestGroupPatch: a condition that is set already is not written, and a changed message does not change
// the time.
func TestGroupPatch(t *testing.T) {
	s := &Scheduler{Options: Options{Clock: newBench().clock}}
	old := metav1.Condition{Type: "PodGroupInitiallyScheduled", Status: "False", Reason: "Unschedulable", Message: "m", LastTransitionTime: at(3)}
	group := gang("g", 1, func(g *schedulingv1beta1.PodGroup) { g.Status.Conditions = []metav1.Condition{old} })
	report := func(status metav1.ConditionStatus, message string) string {
		c := metav1.Condition{Type: old.Type, Status: status, Reason: old.Reason, Message: message}
		return string(s.groupPatch(&groupReport{object: group, condition: c}))
	}
	if got := report("False", "m"); got != "" {
		t.Error(got)
	}
	if got := report("False", "n"); !strings.Contains(got, `"lastTransitionTime":"1970-01-01T00:03:00Z"`) || !strings.Contains(got, `"uid":"g"`) {
		t.Error(got)
	}
	if got := report("True", "n"); strings.Contains(got, "00:03:00Z") {
		t.Error(got)
	}
	if got := s.groupPatch(&groupReport{object: group}); got != nil {
		t.Error(string(got))
	}
}
