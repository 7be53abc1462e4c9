// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestAdmit(t *testing.T) {
	group := func(finalizers ...string) *schedulingv1beta1.PodGroup {
		return &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Finalizers: finalizers}}
	}
	for name, test := range map[string]struct {
		resource string
		object   interface {
			runtime.Object
			metav1.Object
		}
		want []string
	}{
		"new":              {"podgroups.scheduling.k8s.io", group("a/b"), []string{"a/b", finalizer}},
		"finalizer exists": {"podgroups.scheduling.k8s.io", group(finalizer), []string{finalizer}},
		"status":           {"podgroups.scheduling.k8s.io/status", group(), nil},
		"another kind":     {"configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, nil},
	} {
		request := admissiontest.Request{Operation: admission.Create, Resource: test.resource, Object: test.object}
		if err := New().Admit(t.Context(), request.Attributes(), nil); err != nil {
			t.Fatal(err)
		}
		if got := test.object.GetFinalizers(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if New().Handles(admission.Update) {
		t.Error("an update would add the finalizer again after its controller removed it")
	}
}
