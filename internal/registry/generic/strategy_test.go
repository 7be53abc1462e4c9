// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// workload is a kind with all that the strategy handles: spec, status, annotations that increment
// the generation, and labels that the status subresource restores.
func workload() Kind[*appsv1.Deployment] {
	return Kind[*appsv1.Deployment]{
		Name: "Deployment", Plural: "deployments",
		New:     func() *appsv1.Deployment { return &appsv1.Deployment{} },
		NewList: func() runtime.Object { return &appsv1.DeploymentList{} },
		Spec:    func(d *appsv1.Deployment) any { return &d.Spec },
		Status:  func(d *appsv1.Deployment) any { return &d.Status },
		StatusUpdate: Update[*appsv1.Deployment]{
			Prepare: func(_ context.Context, d, old *appsv1.Deployment) { d.Labels = old.Labels },
			Resets:  []string{"metadata.labels"},
		},
	}
}

func (k Kind[T]) strategyForTest() strategy[T] {
	return k.newStrategy(Environment{Scheme: runtime.NewScheme()}, schema.GroupVersion{Group: "apps", Version: "v1"})
}

func deployment(replicas, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 4, Labels: map[string]string{"a": "b"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: ready},
	}
}

func TestCreateStartsGenerationsAndClearsStatus(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*Kind[*appsv1.Deployment])
		generation int64
		ready      int32
	}{
		"ordinary":            {func(*Kind[*appsv1.Deployment]) {}, 1, 0},
		"without generations": {func(k *Kind[*appsv1.Deployment]) { k.Generation = NoGeneration }, 4, 0},
		"with status":         {func(k *Kind[*appsv1.Deployment]) { k.CreatedWithStatus = true }, 1, 5},
		"no spec":             {func(k *Kind[*appsv1.Deployment]) { k.Spec = nil }, 4, 0},
	} {
		kind := workload()
		test.change(&kind)
		d := deployment(1, 5)
		kind.strategyForTest().PrepareForCreate(t.Context(), d)
		if d.Generation != test.generation || d.Status.ReadyReplicas != test.ready {
			t.Errorf("%s: generation %d, ready %d; want %d, %d", name, d.Generation, d.Status.ReadyReplicas, test.generation, test.ready)
		}
	}
}

func TestUpdateKeepsStatusAndCountsGenerations(t *testing.T) {
	annotated := deployment(1, 9)
	annotated.Annotations = map[string]string{"a": "b"}
	for name, test := range map[string]struct {
		obj        *appsv1.Deployment
		annotated  bool
		generation int64
	}{
		"nothing":     {deployment(1, 9), false, 4},
		"spec":        {deployment(2, 9), false, 5},
		"annotations": {annotated, false, 4},
		"annotations, which are copied to children": {annotated, true, 5},
	} {
		kind := workload()
		if test.annotated {
			kind.Generation = SpecAndAnnotations
		}
		d, old := test.obj.DeepCopy(), deployment(1, 5)
		kind.strategyForTest().PrepareForUpdate(t.Context(), d, old)
		if d.Generation != test.generation || d.Status.ReadyReplicas != 5 {
			t.Errorf("%s: generation %d, ready %d; want %d, 5", name, d.Generation, d.Status.ReadyReplicas, test.generation)
		}
	}
}

func TestStatusUpdateKeepsSpec(t *testing.T) {
	kind := workload()
	warned := false
	kind.StatusUpdate.Warnings = func(context.Context, *appsv1.Deployment, *appsv1.Deployment) []string { warned = true; return nil }
	kind.StatusUpdate.Validate = func(_ context.Context, c *check.Checker, d, _ *appsv1.Deployment) {
		c.Invalid(field.NewPath("status"), d.Status.ReadyReplicas, "status rules")
	}
	kind.Validate = func(context.Context, *check.Checker, *appsv1.Deployment) {
		t.Error("the spec was validated")
	}
	s := updateStrategy[*appsv1.Deployment]{kind.strategyForTest(), kind.statusUpdate()}
	d, old := deployment(9, 7), deployment(1, 5)
	d.Labels = map[string]string{"c": "d"}
	s.PrepareForUpdate(t.Context(), d, old)
	if *d.Spec.Replicas != 1 || d.Status.ReadyReplicas != 7 || d.Labels["a"] != "b" || d.Generation != 4 {
		t.Errorf("%+v", d)
	}
	if errs := s.ValidateUpdate(t.Context(), d, old); len(errs) != 1 || errs[0].Detail != "status rules" {
		t.Errorf("%v", errs)
	}
	if s.WarningsOnUpdate(t.Context(), d, old); !warned {
		t.Error("want the warnings of the status")
	}
}

func TestResetFields(t *testing.T) {
	kind := workload()
	all := fieldpath.NewSet()
	for _, path := range [][]any{{"spec", "replicas"}, {"status", "replicas"}, {"metadata", "labels", "a"}, {"metadata", "annotations", "a"}} {
		all.Insert(fieldpath.MakePathOrDie(path...))
	}
	owned := func(filters map[fieldpath.APIVersion]fieldpath.Filter) string {
		return filters["apps/v1"].Filter(all).String()
	}
	main := fieldpath.NewExcludeFilterSetMap(kind.strategyForTest().GetResetFields())
	if got, want := owned(main), all.Difference(fieldpath.NewSet(fieldpath.MakePathOrDie("status", "replicas"))).String(); got != want {
		t.Errorf("main: %s, want %s", got, want)
	}
	status := updateStrategy[*appsv1.Deployment]{kind.strategyForTest(), kind.statusUpdate()}
	want := fieldpath.NewSet(fieldpath.MakePathOrDie("status", "replicas"), fieldpath.MakePathOrDie("metadata", "annotations", "a")).String()
	if got := owned(status.fields()); got != want {
		t.Errorf("status: %s, want %s", got, want)
	}
}

func TestPolicies(t *testing.T) {
	yes := func(schema.GroupVersion) bool { return true }
	for name, test := range map[string]struct {
		change func(*Kind[*appsv1.Deployment])
		want   rest.GarbageCollectionPolicy
	}{
		"ordinary": {func(*Kind[*appsv1.Deployment]) {}, rest.DeleteDependents},
		"orphan":   {func(k *Kind[*appsv1.Deployment]) { k.Deletion.OrphanByDefault = yes }, rest.OrphanDependents},
		"unowned":  {func(k *Kind[*appsv1.Deployment]) { k.Deletion.Unowned = true }, rest.Unsupported},
	} {
		kind := workload()
		test.change(&kind)
		if got := kind.strategyForTest().DefaultGarbageCollectionPolicy(t.Context()); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	kind := workload()
	kind.RequireResourceVersion, kind.CreateOnUpdate = true, true
	if s := kind.strategyForTest(); s.AllowUnconditionalUpdate(t.Context()) || !s.AllowCreateOnUpdate(t.Context()) {
		t.Error("want create on update, and no unconditional updates")
	}
}

func TestMetadataIsValidated(t *testing.T) {
	kind := workload()
	d := deployment(1, 0)
	d.Name, d.Labels = "Not_A_Name", map[string]string{"bad key": ""}
	if errs := kind.strategyForTest().Validate(t.Context(), d); len(errs) != 2 || errs[0].Field != "metadata.name" || errs[1].Field != "metadata.labels" {
		t.Errorf("%v", errs)
	}
	kind.Metadata.Loose = func(context.Context) bool { return true }
	if errs := kind.strategyForTest().Validate(t.Context(), d); len(errs) != 0 {
		t.Errorf("loose: %v", errs)
	}
}

func TestFieldLabels(t *testing.T) {
	kind := workload()
	kind.Fields = map[string]func(*appsv1.Deployment) string{"spec.paused": func(d *appsv1.Deployment) string { return "no" }}
	kind.FieldSelection.Renamed = map[string]string{"spec.halted": "spec.paused"}
	for label, want := range map[string]string{
		"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace", "spec.paused": "spec.paused", "spec.halted": "spec.paused", "spec.other": "",
	} {
		got, value, err := kind.FieldLabel(label, "x")
		if got != want || (err == nil) != (want != "") || err == nil && value != "x" {
			t.Errorf("%s: %q %q %v, want %q", label, got, value, err, want)
		}
	}
	kind.FieldSelection.NamespaceUnselectable = true
	if got, _, err := kind.FieldLabel("metadata.namespace", "x"); err == nil {
		t.Errorf("an unselectable namespace is selected as %q", got)
	}
	labels, set, err := kind.attributes(deployment(1, 0))
	if err != nil || labels["a"] != "b" || set["spec.paused"] != "no" || set["metadata.namespace"] != "default" {
		t.Errorf("%v %v %v", labels, set, err)
	}
	if _, _, err := kind.attributes(&corev1.Pod{}); err == nil {
		t.Error("a Pod passed for a Deployment")
	}
}

func TestTable(t *testing.T) {
	now := time.Unix(10_000, 0)
	kind := workload()
	kind.Columns = []Column[*appsv1.Deployment]{
		{Name: "Wide", Wide: true, Cell: func(*appsv1.Deployment) any { return "w" }},
		{Name: "Ready", Type: "integer", Cell: func(d *appsv1.Deployment) any { return d.Status.ReadyReplicas }},
	}
	kind.Table.AfterAge = []Column[*appsv1.Deployment]{{Name: "Last", Cell: func(*appsv1.Deployment) any { return len("ab") }}}
	kind.Table.RowConditions = func(*appsv1.Deployment) []metav1.TableRowCondition {
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted}}
	}
	d := deployment(1, 5)
	d.CreationTimestamp = metav1.NewTime(now.Add(-90 * time.Second))
	list := &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "c"}, Items: []appsv1.Deployment{*d, *deployment(1, 0)}}
	convertor := newTableConvertor(&kind, clocktesting.NewFakePassiveClock(now))
	table, err := convertor.ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	type column struct {
		name, kind, format string
		priority           int32
	}
	var columns []column
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, column{c.Name, c.Type, c.Format, c.Priority})
	}
	want := []column{{"Name", "string", "name", 0}, {"Ready", "integer", "", 0}, {"Age", "string", "", 0}, {"Last", "string", "", 0}, {"Wide", "string", "", 1}}
	if !slices.Equal(columns, want) {
		t.Errorf("columns %v, want %v", columns, want)
	}
	if diff := cmp.Diff([]any{"web", int64(5), "90s", int64(2), "w"}, table.Rows[0].Cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if table.Rows[1].Cells[2] != "<unknown>" || table.ResourceVersion != "7" || table.Continue != "c" || len(table.Rows[0].Conditions) != 1 {
		t.Errorf("%+v", table)
	}
	if _, err := json.Marshal(table.Rows[0].Cells); err != nil {
		t.Error(err)
	}
	bare, err := convertor.ConvertToTable(t.Context(), d, &metav1.TableOptions{NoHeaders: true})
	if err != nil || len(bare.ColumnDefinitions) != 0 || len(bare.Rows) != 1 {
		t.Errorf("%+v, %v", bare, err)
	}
}
