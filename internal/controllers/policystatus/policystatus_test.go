// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestEachGenerationIsCheckedOnce(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithObjects(policy).WithStatusSubresource(policy).Build()
	var checks int
	found := []admissionv1.ExpressionWarning{{FieldRef: "spec.validations[0].expression", Warning: "no such field"}}
	r := &reconciler{client: api, check: func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning {
		checks++
		return found
	}}
	key := client.ObjectKey{Name: "p"}
	reconcile := func(generation int64, want []admissionv1.ExpressionWarning) {
		t.Helper()
		for range 2 {
			if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		if err := api.Get(ctx, key, policy); err != nil {
			t.Fatal(err)
		}
		var got []admissionv1.ExpressionWarning
		if policy.Status.TypeChecking != nil {
			got = policy.Status.TypeChecking.ExpressionWarnings
		}
		if diff := cmp.Diff(want, got); diff != "" || policy.Status.ObservedGeneration != generation || checks != int(generation) {
			t.Errorf("%d checks, generation %d, warnings (-want +got):\n%s", checks, policy.Status.ObservedGeneration, diff)
		}
	}
	reconcile(1, found)
	policy.Generation, found = 2, nil
	if err := api.Update(ctx, policy); err != nil {
		t.Fatal(err)
	}
	reconcile(2, nil)
	if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); err != nil || checks != 2 {
		t.Errorf("a deleted policy: %v, %d checks", err, checks)
	}
}
