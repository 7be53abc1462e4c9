// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var planNow = controltest.Start.Add(24 * time.Hour)

// sketch returns a pod described by words: "web-1 old ready" is the ready pod with ordinal 1 at the
// revision "old". Other words: pending, fresh (ready for less than minReadySeconds), failed,
// succeeded, terminating, unnamed (without the label that has its name).
func sketch(text string) *corev1.Pod {
	words := strings.Fields(text)
	name := words[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{
			appsv1.StatefulSetPodNameLabel: name, appsv1.StatefulSetRevisionLabel: "new",
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ready := func(ago time.Duration) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(planNow.Add(-ago))}}
	}
	for _, word := range words[1:] {
		switch word {
		case "old":
			pod.Labels[appsv1.StatefulSetRevisionLabel] = "old"
		case "pending":
			pod.Status.Phase = corev1.PodPending
		case "ready":
			ready(time.Hour)
		case "fresh":
			ready(time.Second)
		case "failed":
			pod.Status.Phase = corev1.PodFailed
		case "succeeded":
			pod.Status.Phase = corev1.PodSucceeded
		case "terminating":
			pod.DeletionTimestamp = &metav1.Time{Time: planNow}
		case "unnamed":
			delete(pod.Labels, appsv1.StatefulSetPodNameLabel)
		default:
			panic(word)
		}
	}
	return pod
}

// newSet returns a StatefulSet "web" after the given changes.
func newSet(replicas int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	app := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         "nodes",
			Selector:            &metav1.LabelSelector{MatchLabels: app},
			PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)},
			},
			RevisionHistoryLimit: new(int32(10)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app, Finalizers: []string{"test/running"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func parallel(set *appsv1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
}

func onDelete(set *appsv1.StatefulSet) {
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func startingAt(ordinal int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: ordinal} }
}

func partition(n int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}

func maxUnavailable(text string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		n := intstr.Parse(text)
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &n
	}
}

func minReady(seconds int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = seconds }
}

// String returns the ordinals of the plan, and the names of the pods that it removes.
func (p plan) String() string {
	var parts []string
	add := func(verb string, replicas []replica) {
		var ordinals []string
		for _, r := range replicas {
			ordinals = append(ordinals, fmt.Sprint(r.ordinal))
		}
		if len(ordinals) > 0 {
			parts = append(parts, verb+" "+strings.Join(ordinals, " "))
		}
	}
	add("create", p.create)
	add("supply", p.supply)
	add("repair", p.repair)
	add("release", p.release)
	if len(p.remove) > 0 {
		var names []string
		for _, pod := range p.remove {
			names = append(names, pod.Name)
		}
		parts = append(parts, "remove "+strings.Join(names, " "))
	}
	return strings.Join(parts, ", ")
}

func viewOf(set *appsv1.StatefulSet, pods ...*corev1.Pod) view {
	return newView(set, history{current: revision{name: "old"}, update: revision{name: "new"}}, pods, planNow)
}

func TestPlan(t *testing.T) {
	type changes = []func(*appsv1.StatefulSet)
	for name, tc := range map[string]struct {
		replicas int32
		changes  changes
		pods     []string
		want     string
	}{
		"ordered: the first pod alone":                                   {3, nil, nil, "create 0"},
		"ordered: waits for a pod that is not ready":                     {3, nil, []string{"web-0"}, ""},
		"ordered: waits for a pod that is not available":                 {3, changes{minReady(10)}, []string{"web-0 fresh"}, ""},
		"ordered: the next pod after a ready one":                        {3, nil, []string{"web-0 ready"}, "create 1"},
		"ordered: fills a gap before it goes on":                         {3, nil, []string{"web-0 ready", "web-2 ready"}, "create 1"},
		"ordered: waits for a terminating pod":                           {3, nil, []string{"web-0 ready", "web-1 ready terminating"}, ""},
		"ordered: replaces a failed pod first":                           {3, nil, []string{"web-0 failed", "web-1 failed"}, "remove web-0"},
		"ordered: replaces an evicted pod that was ready":                {3, nil, []string{"web-0 failed ready", "web-1 ready"}, "remove web-0"},
		"ordered: waits until a failed pod is gone":                      {1, nil, []string{"web-0 failed terminating"}, ""},
		"ordered: replaces a succeeded pod":                              {1, nil, []string{"web-0 succeeded"}, "remove web-0"},
		"ordered: repairs a label of an available pod":                   {2, nil, []string{"web-0 ready unnamed", "web-1 unnamed"}, "repair 0"},
		"ordered: scales down the highest ordinal alone":                 {1, nil, []string{"web-0 ready", "web-1 ready", "web-2 ready"}, "remove web-2"},
		"ordered: waits for the previous pod to go":                      {1, nil, []string{"web-0 ready", "web-1 ready", "web-2 ready terminating"}, ""},
		"ordered: does not scale down while a replica is not ready":      {1, nil, []string{"web-0", "web-1 ready"}, ""},
		"ordered: scales down the only unavailable pod":                  {1, nil, []string{"web-0 ready", "web-1 ready", "web-2"}, "remove web-2"},
		"ordered: scaling down waits for a lower unavailable pod":        {1, nil, []string{"web-0 ready", "web-1", "web-2"}, ""},
		"ordered: scales down an available pod above an unavailable one": {1, nil, []string{"web-0 ready", "web-1", "web-2 ready"}, "remove web-2"},
		"ordered: scales down before it updates":                         {1, nil, []string{"web-0 old ready", "web-1 old ready"}, "remove web-1"},
		"ordered: updates the highest ordinal first":                     {3, nil, []string{"web-0 old ready", "web-1 old ready", "web-2 old ready"}, "remove web-2"},
		"ordered: an update waits for the updated pod":                   {3, nil, []string{"web-0 old ready", "web-1 old ready", "web-2"}, ""},
		"ordered: an update goes on downwards":                           {3, nil, []string{"web-0 old ready", "web-1 old ready", "web-2 ready"}, "remove web-1"},
		"ordered: an outdated pod that is never ready blocks the update": {2, nil, []string{"web-0 old ready", "web-1 old"}, ""},
		"ordered: an update ends at the partition":                       {3, changes{partition(2)}, []string{"web-0 old ready", "web-1 old ready", "web-2 ready"}, ""},
		"ordered: a partition above the replicas stops the update":       {2, changes{partition(9)}, []string{"web-0 old ready", "web-1 old ready"}, ""},
		"ordered: maxUnavailable pods are updated at a time":             {4, changes{maxUnavailable("2")}, []string{"web-0 old ready", "web-1 old ready", "web-2 old ready", "web-3 old ready"}, "remove web-3 web-2"},
		"ordered: maxUnavailable in percent is rounded down":             {5, changes{maxUnavailable("50%")}, []string{"web-0 old ready", "web-1 old ready", "web-2 old ready", "web-3 old ready", "web-4 old ready"}, "remove web-4 web-3"},
		"ordered: maxUnavailable is at least one":                        {2, changes{maxUnavailable("1%")}, []string{"web-0 old ready", "web-1 old ready"}, "remove web-1"},
		"OnDelete: outdated pods stay":                                   {2, changes{onDelete}, []string{"web-0 old ready", "web-1 old ready"}, ""},
		"ordinals: the first pod has the first ordinal":                  {2, changes{startingAt(5)}, nil, "create 5"},
		"ordinals: pods outside of the range go, the highest first":      {2, changes{startingAt(1)}, []string{"web-0 ready", "web-1 ready", "web-2 ready", "web-3 ready"}, "remove web-3"},
		"ordinals: a pod below the range goes last":                      {2, changes{startingAt(1)}, []string{"web-0 ready", "web-1 ready", "web-2 ready"}, "remove web-0"},
		"ordinals: the partition counts from the first ordinal":          {3, changes{startingAt(5), partition(1)}, []string{"web-5 old ready", "web-6 old ready", "web-7 ready"}, "remove web-6"},
		"parallel: all pods at once":                                     {3, changes{parallel}, nil, "create 0 1 2"},
		"parallel: does not wait":                                        {3, changes{parallel}, []string{"web-1"}, "create 0 2"},
		"parallel: replaces all failed pods":                             {3, changes{parallel}, []string{"web-0 failed", "web-1 failed", "web-2 ready"}, "remove web-0 web-1"},
		"parallel: scales down all surplus pods":                         {1, changes{parallel}, []string{"web-0", "web-1", "web-2 ready"}, "remove web-2 web-1"},
		"parallel: one available pod is updated at a time":               {3, changes{parallel}, []string{"web-0 old ready", "web-1 old ready", "web-2 old ready"}, "remove web-2"},
		"parallel: an update waits while a pod is unavailable":           {3, changes{parallel}, []string{"web-0 old ready", "web-1 old ready", "web-2"}, ""},
		"parallel: unavailable outdated pods do not wait":                {3, changes{parallel}, []string{"web-0 old", "web-1 old ready", "web-2 old"}, "remove web-2 web-0"},
		"parallel: unavailable pods use up maxUnavailable":               {4, changes{parallel, maxUnavailable("2")}, []string{"web-0 old", "web-1 old ready", "web-2 old ready", "web-3 old ready"}, "remove web-0 web-3"},
		"parallel: an unavailable pod below the partition stays":         {3, changes{parallel, partition(1)}, []string{"web-0 old", "web-1 old ready", "web-2 old ready"}, ""},
		"parallel: repairs pods that are not available":                  {2, changes{parallel}, []string{"web-0 unnamed", "web-1 ready"}, "repair 0"},
		"a pod with another name is ignored":                             {1, nil, []string{"web-0 ready", "web-01 ready", "web-x ready", "other-1 ready"}, ""},
		"no replicas":                                                    {0, nil, []string{"web-0 ready"}, "remove web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, text := range tc.pods {
				pods = append(pods, sketch(text))
			}
			slices.Reverse(pods) // the order of a list does not matter
			if got := viewOf(newSet(tc.replicas, tc.changes...), pods...).plan().String(); got != tc.want {
				t.Errorf("plan %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRevisionOfMissingPods: below the partition, a pod is created at the current revision.
func TestRevisionOfMissingPods(t *testing.T) {
	v := viewOf(newSet(3, startingAt(5), partition(1)))
	var got []string
	for _, r := range v.replicas {
		got = append(got, v.revisionFor(r).name)
	}
	if want := []string{"old", "new", "new"}; !slices.Equal(got, want) {
		t.Errorf("revisions %q, want %q", got, want)
	}
	if r := viewOf(newSet(1, onDelete)); r.revisionFor(r.replicas[0]).name != "new" {
		t.Error("with OnDelete, a pod is created at the old revision")
	}
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas int32
		pods     []string
		removed  int // how many of the pods were removed in this pass
		want     appsv1.StatefulSetStatus
	}{
		"an update in progress": {3, []string{"web-0 old ready", "web-1 old ready terminating", "web-2 fresh"}, 0,
			appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 2, CurrentReplicas: 1, UpdatedReplicas: 1, CurrentRevision: "old"}},
		"a removed pod is neither current nor updated": {2, []string{"web-0 old ready", "web-1 old ready"}, 1,
			appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, CurrentReplicas: 1, CurrentRevision: "old"}},
		"a complete update": {2, []string{"web-0 ready", "web-1 ready"}, 0,
			appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, CurrentReplicas: 2, UpdatedReplicas: 2, CurrentRevision: "new"}},
		"an update with a surplus pod is not complete": {1, []string{"web-0 ready", "web-1 ready"}, 0,
			appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2, CurrentRevision: "old"}},
		"a failed pod is not ready": {1, []string{"web-0 failed ready"}, 0,
			appsv1.StatefulSetStatus{Replicas: 1, UpdatedReplicas: 1, CurrentRevision: "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, text := range tc.pods {
				pods = append(pods, sketch(text))
			}
			tc.want.UpdateRevision = "new"
			got := viewOf(newSet(tc.replicas, minReady(10)), pods...).status(pods[:tc.removed])
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
				t.Errorf("status %+v,\nwant   %+v", got, tc.want)
			}
		})
	}
}
