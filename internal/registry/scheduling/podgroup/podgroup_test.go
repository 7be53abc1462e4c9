// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

func gang(count int32) schedulingv1beta1.PodGroupSchedulingPolicy {
	return schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: count}}
}

func TestDisabledFieldsAreDropped(t *testing.T) {
	used := schedulingv1beta1.PodGroupSpec{
		SchedulingPolicy:            gang(2),
		SchedulingConstraints:       &schedulingv1beta1.PodGroupSchedulingConstraints{},
		ResourceClaims:              []schedulingv1beta1.PodGroupResourceClaim{{Name: "a"}},
		PreemptionPolicy:            new(schedulingv1beta1.PreemptNever),
		ParentCompositePodGroupName: new("parent"),
	}
	plain := schedulingv1beta1.PodGroupSpec{SchedulingPolicy: gang(2), ResourceClaims: used.ResourceClaims}
	for name, test := range map[string]struct {
		old  *schedulingv1beta1.PodGroup
		want schedulingv1beta1.PodGroupSpec
	}{
		"create":                   {nil, plain},
		"update":                   {&schedulingv1beta1.PodGroup{Spec: plain}, plain},
		"the stored object has it": {&schedulingv1beta1.PodGroup{Spec: used}, used},
	} {
		g := &schedulingv1beta1.PodGroup{Spec: *used.DeepCopy()}
		PodGroup.Prepare(t.Context(), g, test.old)
		if diff := cmp.Diff(test.want, g.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDisabledFieldsOfTemplatesAreDropped(t *testing.T) {
	used := schedulingv1beta1.PodGroupTemplate{
		Name: "t", SchedulingPolicy: gang(2),
		SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{},
		ResourceClaims:        []schedulingv1beta1.PodGroupResourceClaim{{Name: "a"}},
		PreemptionPolicy:      new(schedulingv1beta1.PreemptNever),
	}
	plain := schedulingv1beta1.PodGroupTemplate{Name: "t", SchedulingPolicy: gang(2)}
	composite := []schedulingv1beta1.CompositePodGroupTemplate{{Name: "c"}}
	w := &schedulingv1beta1.Workload{Spec: schedulingv1beta1.WorkloadSpec{
		PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{used, used}, CompositePodGroupTemplates: composite,
	}}
	old := &schedulingv1beta1.Workload{Spec: schedulingv1beta1.WorkloadSpec{PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{used}}}
	Workload.Prepare(t.Context(), w, old)
	if diff := cmp.Diff(schedulingv1beta1.WorkloadSpec{PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{used, plain}}, w.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.Spec.PodGroupTemplates[1].ResourceClaims = used.ResourceClaims
	if Workload.Prepare(generic.WithGangs(t.Context()), w, old); len(w.Spec.PodGroupTemplates[1].ResourceClaims) != 1 {
		t.Error("claims were dropped although PodGroups are served")
	}
	old.Spec.CompositePodGroupTemplates = composite
	w.Spec.CompositePodGroupTemplates = composite
	if Workload.Prepare(t.Context(), w, old); len(w.Spec.CompositePodGroupTemplates) != 1 {
		t.Error("stored templates were dropped")
	}
}

func TestTemplatesHaveOnePriority(t *testing.T) {
	template := func(class string, priority *int32) schedulingv1beta1.PodGroupTemplate {
		return schedulingv1beta1.PodGroupTemplate{Name: "t", PriorityClassName: class, Priority: priority}
	}
	for name, test := range map[string]struct {
		templates []schedulingv1beta1.PodGroupTemplate
		want      []string
	}{
		"none":     {nil, nil},
		"the same": {[]schedulingv1beta1.PodGroupTemplate{template("a", new(int32(1))), template("a", new(int32(1)))}, nil},
		"classes":  {[]schedulingv1beta1.PodGroupTemplate{template("a", nil), template("b", nil)}, []string{`spec: Invalid value: null: detected multiple priority configurations`}},
		"numbers":  {[]schedulingv1beta1.PodGroupTemplate{template("a", nil), template("a", new(int32(1)))}, []string{`spec: Invalid value: null: detected multiple priority configurations`}},
	} {
		w := &schedulingv1beta1.Workload{Spec: schedulingv1beta1.WorkloadSpec{PodGroupTemplates: test.templates}}
		wantErrors(t, name, checktest.Errors(t.Context(), Workload.Validate, w), test.want)
	}
}

func wantErrors[E error](t *testing.T, name string, errs []E, want []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

func TestPodGroupStatus(t *testing.T) {
	claims := []schedulingv1beta1.PodGroupResourceClaim{{Name: "a"}}
	old := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Labels: map[string]string{"a": "b"}}}
	g := old.DeepCopy()
	g.Labels = nil
	PodGroup.StatusUpdate.Prepare(t.Context(), g, old)
	if len(g.Labels) != 1 {
		t.Errorf("%+v", g)
	}
	g.Spec.ResourceClaims = claims
	g.Status.ResourceClaimStatuses = []schedulingv1beta1.PodGroupResourceClaimStatus{{Name: "a"}, {Name: "b"}}
	g.Status.Conditions = []metav1.Condition{{Type: "T", Status: "True", Reason: "R"}}
	errs := checktest.UpdateErrors(t.Context(), PodGroup.StatusUpdate.Validate, g, old)
	wantErrors(t, "status", errs, []string{
		"status.conditions[0].lastTransitionTime: Required value",
		"status.resourceClaimStatuses[1].name: Invalid value: \"b\": must match the name of an entry in `spec.resourceClaims`",
	})
}

func TestColumns(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Because"}
	}
	basic := schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	for _, test := range []struct {
		policy     schedulingv1beta1.PodGroupSchedulingPolicy
		workload   *schedulingv1beta1.WorkloadReference
		conditions []metav1.Condition
		want       []any
	}{
		{basic, nil, nil, []any{"Basic", "<none>", "Pending"}},
		{gang(1), &schedulingv1beta1.WorkloadReference{WorkloadName: "w"}, []metav1.Condition{condition("PodGroupInitiallyScheduled", "False")}, []any{"Gang", "w", "Unschedulable"}},
		{gang(1), nil, []metav1.Condition{condition("PodGroupInitiallyScheduled", "True")}, []any{"Gang", "<none>", "Scheduled"}},
		{gang(1), nil, []metav1.Condition{condition("PodGroupInitiallyScheduled", "True"), condition("DisruptionTarget", "True")}, []any{"Gang", "<none>", "Because"}},
	} {
		g := &schedulingv1beta1.PodGroup{}
		g.Spec.SchedulingPolicy, g.Spec.WorkloadRef, g.Status.Conditions = test.policy, test.workload, test.conditions
		var got []any
		for _, column := range PodGroup.Columns {
			got = append(got, column.Cell(g))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	all := schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	list := &schedulingv1beta1.PodGroupList{Items: []schedulingv1beta1.PodGroup{{}, {Spec: schedulingv1beta1.PodGroupSpec{DisruptionMode: &all}}}}
	scheme.Default(list)
	if list.Items[0].Spec.DisruptionMode.Single == nil || list.Items[1].Spec.DisruptionMode.Single != nil {
		t.Errorf("%+v", list.Items)
	}
}

// The declared validation of the kinds is complete for what v1beta1 allows to change.
func TestPolicyIsImmutableButForItsCount(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	options := map[string]bool{"TopologyAwareWorkloadScheduling": false, "PodGroupPreemptionPolicy": false, "CompositePodGroup": false}
	group := func(policy schedulingv1beta1.PodGroupSchedulingPolicy) *schedulingv1beta1.PodGroup {
		return &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "n"}, Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: policy}}
	}
	basic := schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	for name, test := range map[string]struct {
		old, new schedulingv1beta1.PodGroupSchedulingPolicy
		valid    bool
	}{
		"other count": {gang(3), gang(2), true},
		"no count":    {gang(3), gang(0), false},
		"to basic":    {gang(3), basic, false},
		"to gang":     {basic, gang(3), false},
	} {
		errs := scheme.ValidateUpdate(context.Background(), options, group(test.new), group(test.old))
		if test.valid != (len(errs) == 0) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
