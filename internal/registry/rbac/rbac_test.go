// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// wantErrors compares errors by prefix, in any order.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

func TestRules(t *testing.T) {
	for name, test := range map[string]struct {
		rule              rbacv1.PolicyRule
		namespaced, wider []string
	}{
		"resources":  {rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}, nil, nil},
		"nothing":    {rbacv1.PolicyRule{}, []string{"rules[0].verbs: Required", "rules[0].apiGroups: Required", "rules[0].resources: Required"}, []string{"rules[0].verbs: Required", "rules[0].apiGroups: Required", "rules[0].resources: Required"}},
		"URLs":       {rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}, []string{"rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"}, nil},
		"everything": {rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}, Resources: []string{"*"}}, []string{"rules[0].nonResourceURLs: Invalid", "rules[0].nonResourceURLs: Invalid"}, []string{"rules[0].nonResourceURLs: Invalid value: [\"*\"]: rules cannot apply to both"}},
	} {
		wantErrors(t, "Role: "+name, check.Run(func(c *check.Checker) {
			validateRole(t.Context(), c, &rbacv1.Role{Rules: []rbacv1.PolicyRule{test.rule}})
		}), test.namespaced...)
		wantErrors(t, "ClusterRole: "+name, check.Run(func(c *check.Checker) {
			validateClusterRole(t.Context(), c, &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{test.rule}})
		}), test.wider...)
	}
	for name, test := range map[string]struct {
		selectors []metav1.LabelSelector
		want      []string
	}{
		"some": {[]metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}, nil},
		"none": {nil, []string{"aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required"}},
		"bad": {[]metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}},
			[]string{"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid", "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."}},
	} {
		role := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: test.selectors}}
		wantErrors(t, "aggregation: "+name, check.Run(func(c *check.Checker) { validateClusterRole(t.Context(), c, role) }), test.want...)
	}
}

func TestBindings(t *testing.T) {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	for name, test := range map[string]struct {
		ref     rbacv1.RoleRef
		subject rbacv1.Subject
		want    []string
	}{
		"user":             {role, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}, nil},
		"account":          {role, rbacv1.Subject{Kind: "ServiceAccount", Name: "default"}, nil},
		"another group":    {role, rbacv1.Subject{Kind: "Group", Name: "g"}, []string{`subjects[0].apiGroup: Unsupported value: ""`}},
		"account of group": {role, rbacv1.Subject{Kind: "ServiceAccount", Name: "a", APIGroup: "x"}, []string{`subjects[0].apiGroup: Unsupported value: "x"`}},
		"odd account":      {role, rbacv1.Subject{Kind: "ServiceAccount", Name: "A b"}, []string{`subjects[0].name: Invalid value: "A b"`}},
		"no name":          {role, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName}, []string{"subjects[0].name: Required"}},
		"a robot":          {role, rbacv1.Subject{Kind: "Robot", Name: "r"}, []string{`subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`}},
		"no role":          {rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}, []string{"roleRef.name: Required"}},
		"a pod":            {rbacv1.RoleRef{Kind: "Pod", Name: "a/b"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}, []string{`roleRef.apiGroup: Unsupported value: ""`, `roleRef.kind: Unsupported value: "Pod"`, `roleRef.name: Invalid value: "a/b": may not contain '/'`}},
	} {
		b := &rbacv1.RoleBinding{RoleRef: test.ref, Subjects: []rbacv1.Subject{test.subject}}
		wantErrors(t, name, check.Run(func(c *check.Checker) { validateRoleBinding(t.Context(), c, b) }), test.want...)
	}
	wider := &rbacv1.ClusterRoleBinding{RoleRef: role, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}}
	wantErrors(t, "cluster", check.Run(func(c *check.Checker) { validateClusterRoleBinding(t.Context(), c, wider) }), `roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`, "subjects[0].namespace: Required")
	old := &rbacv1.RoleBinding{RoleRef: role}
	changed := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}
	wantErrors(t, "another role", check.Run(func(c *check.Checker) { validateRoleBindingUpdate(t.Context(), c, changed, old) }), "roleRef: Invalid value")
}

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := rbacv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &rbacv1.ClusterRoleBinding{Subjects: []rbacv1.Subject{{Kind: "User"}, {Kind: "Group"}, {Kind: "ServiceAccount"}}}
	scheme.Default(b)
	if b.RoleRef.APIGroup != rbacv1.GroupName || b.Subjects[0].APIGroup != rbacv1.GroupName || b.Subjects[1].APIGroup != rbacv1.GroupName || b.Subjects[2].APIGroup != "" {
		t.Errorf("%+v", b)
	}
}

// TestGuardedChanges checks that each change is checked for escalation, except those of the
// garbage collector.
func TestGuardedChanges(t *testing.T) {
	refusal := errors.New("escalation")
	hooks := guard(func(context.Context, *rbacv1.ClusterRole, *rbacv1.ClusterRole) error { return refusal })
	old := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Finalizers: []string{"a/b"}}}
	for name, test := range map[string]struct {
		change  func(*rbacv1.ClusterRole)
		checked bool
	}{
		"nothing":     {func(*rbacv1.ClusterRole) {}, false},
		"finalizers":  {func(r *rbacv1.ClusterRole) { r.Finalizers = nil }, false},
		"owners":      {func(r *rbacv1.ClusterRole) { r.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }, false},
		"rules":       {func(r *rbacv1.ClusterRole) { r.Rules = []rbacv1.PolicyRule{{}} }, true},
		"aggregation": {func(r *rbacv1.ClusterRole) { r.AggregationRule = &rbacv1.AggregationRule{} }, true},
		"labels": {func(r *rbacv1.ClusterRole) {
			r.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		}, true},
		"an owner, more": {func(r *rbacv1.ClusterRole) { r.Finalizers = nil; r.Rules = []rbacv1.PolicyRule{{}} }, true},
	} {
		changed := old.DeepCopy()
		test.change(changed)
		if _, err := hooks.BeginUpdate(t.Context(), changed, old, false); errors.Is(err, refusal) != test.checked {
			t.Errorf("%s: %v, want it checked: %v", name, err, test.checked)
		}
	}
	for _, dryRun := range []bool{false, true} {
		if _, err := hooks.BeginCreate(t.Context(), old, dryRun); !errors.Is(err, refusal) {
			t.Errorf("create, dry %v: %v", dryRun, err)
		}
	}
}

func TestSubjectCells(t *testing.T) {
	subjects := []rbacv1.Subject{{Kind: "User", Name: "a"}, {Kind: "ServiceAccount", Namespace: "n", Name: "s"}, {Kind: "User", Name: "b"}}
	if users, accounts, groups := subjectNames(subjects, "User"), subjectNames(subjects, "ServiceAccount"), subjectNames(subjects, "Group"); users != "a, b" || accounts != "n/s" || groups != "" {
		t.Errorf("%q %q %q", users, accounts, groups)
	}
}
