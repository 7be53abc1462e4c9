// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package roleaggregation

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func rule(verb string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"pods"}}
}

func role(name, label string, verbs ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}}
	for _, verb := range verbs {
		r.Rules = append(r.Rules, rule(verb))
	}
	return r
}

func aggregate(name, label string, from ...string) *rbacv1.ClusterRole {
	r := role(name, label)
	r.AggregationRule = &rbacv1.AggregationRule{}
	for _, f := range from {
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{f: "true"}})
	}
	return r
}

func verbs(r *rbacv1.ClusterRole) []string {
	var all []string
	for _, rule := range r.Rules {
		all = append(all, rule.Verbs...)
	}
	return all
}

func TestAggregatedRolesAreUpdated(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	must(t, rbacv1.AddToScheme(scheme))
	var writes int
	api := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithObjects(
			role("b", "to-view", "watch", "get"), role("a", "to-view", "get"), role("c", "to-edit", "update"),
			role("other", "to-nothing", "delete"),
			aggregate("view", "to-edit", "to-view"), aggregate("edit", "to-nothing", "to-edit"),
			aggregate("self", "to-self", "to-self"),
		).
		WithInterceptorFuncs(interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			writes++
			return c.Apply(ctx, obj, opts...)
		}}).Build()
	r := &reconciler{client: api}
	settle := func() {
		for before := -1; before != writes; {
			before = writes
			_, err := r.Reconcile(ctx, ctrl.Request{})
			must(t, err)
		}
	}
	holds := func(name string, want ...string) {
		t.Helper()
		found := &rbacv1.ClusterRole{}
		must(t, api.Get(ctx, client.ObjectKey{Name: name}, found))
		if diff := cmp.Diff(want, verbs(found)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if found.AggregationRule == nil || len(found.Labels) != 1 {
			t.Errorf("%s lost its rule or its label: %v", name, found)
		}
	}

	settle()
	holds("view", "get", "watch")
	holds("edit", "update", "get", "watch") // c, then view
	holds("self")
	if writes != 3 { // edit before view, and once more after it
		t.Errorf("%d writes", writes)
	}

	must(t, api.Delete(ctx, role("b", "")))
	settle()
	holds("view", "get")
	holds("edit", "update", "get")

	// Rules written by another client are replaced.
	spoilt := &rbacv1.ClusterRole{}
	must(t, api.Get(ctx, client.ObjectKey{Name: "view"}, spoilt))
	spoilt.Rules = append(spoilt.Rules, rule("impersonate"))
	must(t, api.Update(ctx, spoilt))
	settle()
	holds("view", "get")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
