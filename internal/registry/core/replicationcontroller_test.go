// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func newController(t *testing.T, change func(*corev1.ReplicationController)) *corev1.ReplicationController {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ReplicationControllerSpec{
		Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
	scheme.Default(r)
	change(r)
	return r
}

func TestReplicationController(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.ReplicationController)
		want   []string
	}{
		"good":                 {func(*corev1.ReplicationController) {}, nil},
		"numbers":              {func(r *corev1.ReplicationController) { r.Spec.Replicas, r.Spec.MinReadySeconds = new(int32(-1)), -1 }, []string{"spec.minReadySeconds: Invalid value: -1", "spec.replicas: Invalid value: -1"}},
		"no replicas":          {func(r *corev1.ReplicationController) { r.Spec.Replicas = nil }, []string{"spec.replicas: Required value"}},
		"no selector":          {func(r *corev1.ReplicationController) { r.Spec.Selector = nil }, []string{"spec.selector: Required value"}},
		"labels do not match":  {func(r *corev1.ReplicationController) { r.Spec.Selector = map[string]string{"a": "x"} }, []string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		"no template":          {func(r *corev1.ReplicationController) { r.Spec.Template = nil }, []string{"spec.template: Required value"}},
		"restart policy Never": {func(r *corev1.ReplicationController) { r.Spec.Template.Spec.RestartPolicy = "Never" }, []string{`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`}},
		"active deadline":      {func(r *corev1.ReplicationController) { r.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(1)) }, []string{"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"}},
	} {
		wantProblems(t, name, checktest.Errors(t.Context(), ReplicationController.Validate, newController(t, test.change)), test.want...)
	}
	marked := newController(t, func(r *corev1.ReplicationController) {
		r.Annotations = map[string]string{corev1.NonConvertibleAnnotationPrefix + "/selector": "x", corev1.NonConvertibleAnnotationPrefix + "/other": "y", "a": "b"}
	})
	changed := newController(t, func(r *corev1.ReplicationController) {
		r.Spec.Selector, r.Spec.Template.Labels = map[string]string{"c": "d"}, map[string]string{"c": "d"}
	})
	wantProblems(t, "not convertible", checktest.UpdateErrors(t.Context(), ReplicationController.ValidateUpdate, changed, marked), `other: Not found: "y": unknown non-convertible field`, "spec.selector: Invalid value: {\"c\":\"d\"}: cannot update non-convertible selector")
	status := &corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 1, FullyLabeledReplicas: 2, AvailableReplicas: 1, ObservedGeneration: -1}}
	wantProblems(t, "status", checktest.UpdateErrors(t.Context(), ReplicationController.StatusUpdate.Validate, status, status), "status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas",
		"status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas", "status.observedGeneration: Invalid value: -1")
}

func TestReplicationControllerColumns(t *testing.T) {
	r := newController(t, func(r *corev1.ReplicationController) {
		r.Name, r.Status = "a.b", corev1.ReplicationControllerStatus{Replicas: 3, ReadyReplicas: 2}
	})
	if diff := cmp.Diff([]any{int32(1), int32(3), int32(2), "c", "i", "a=b"}, cells(ReplicationController, r)); diff != "" {
		t.Error(diff)
	}
	if got := ReplicationController.Warnings(t.Context(), r, nil); len(got) != 1 || !strings.Contains(got[0], "a DNS label is recommended") {
		t.Errorf("%q", got)
	}
	if got := ReplicationController.Warnings(t.Context(), r, r); len(got) != 0 {
		t.Errorf("unchanged: %q", got)
	}
	old := newController(t, func(r *corev1.ReplicationController) {
		r.Generation, r.Spec.Template.Spec.Containers[0].Env = 7, []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
	})
	if got := ReplicationController.Warnings(t.Context(), r, old); len(got) != 1 {
		t.Errorf("of the old template: %q", got)
	}
	if got := ReplicationController.Fields["status.replicas"](r); got != "3" {
		t.Errorf("selectable as %s", got)
	}
	r.Spec.Template = nil
	if diff := cmp.Diff([]any{int32(1), int32(3), int32(2), "", "", "a=b"}, cells(ReplicationController, r)); diff != "" {
		t.Error(diff)
	}
}

func TestComponentStatus(t *testing.T) {
	good := func(context.Context) error { return nil }
	s := newComponentStatus([]Component{{"scheduler", good}, {"etcd-0", func(context.Context) error { return errors.New("gone") }}}).Endpoint.(componentStatus)
	list := func(options *metainternalversion.ListOptions) *corev1.ComponentStatusList {
		t.Helper()
		out, err := s.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.ComponentStatusList)
	}
	table, err := s.ConvertToTable(t.Context(), list(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]any{{"scheduler", "Healthy", "ok", ""}, {"etcd-0", "Unhealthy", "", "gone"}}
	for i, row := range table.Rows {
		if diff := cmp.Diff(want[i], row.Cells); diff != "" {
			t.Error(diff)
		}
	}
	if got := list(&metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "etcd-0")}).Items; len(got) != 1 || got[0].Name != "etcd-0" {
		t.Errorf("selected %v", got)
	}
	if _, err := s.Get(t.Context(), "nobody", nil); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	if got, err := s.Get(t.Context(), "scheduler", nil); err != nil || got.(*corev1.ComponentStatus).Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("%v, %v", got, err)
	}
}
