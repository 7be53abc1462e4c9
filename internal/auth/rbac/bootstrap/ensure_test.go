// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// count returns how often each verb was used on the RBAC kinds.
func count(client *fake.Clientset) map[string]int {
	verbs := map[string]int{}
	for _, action := range client.Actions() {
		if action.GetResource().Group == rbacv1.GroupName {
			verbs[action.GetVerb()]++
		}
	}
	return verbs
}

// small returns a part of the policy with objects of each kind, because the fake client is too slow
// for the whole policy in every test.
func small() Policy {
	p := Default(Optional{})
	other := func(name string) bool {
		return !slices.Contains([]string{"view", "system:kube-dns", "system:heapster", "system:monitoring", "system:basic-user", "system:controller:token-cleaner"}, name)
	}
	p.ClusterRoles = slices.DeleteFunc(p.ClusterRoles, func(o rbacv1.ClusterRole) bool { return other(o.Name) })
	p.ClusterRoleBindings = slices.DeleteFunc(p.ClusterRoleBindings, func(o rbacv1.ClusterRoleBinding) bool { return other(o.Name) })
	p.Roles = slices.DeleteFunc(p.Roles, func(o rbacv1.Role) bool { return other(o.Name) })
	p.RoleBindings = slices.DeleteFunc(p.RoleBindings, func(o rbacv1.RoleBinding) bool { return other(o.Name) })
	return p
}

func TestEnsureWritesOnce(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	if err := Ensure(ctx, client, Optional{}); err != nil {
		t.Fatal(err)
	}
	p := Default(Optional{})
	total := len(p.ClusterRoles) + len(p.ClusterRoleBindings) + len(p.Roles) + len(p.RoleBindings)
	if diff := cmp.Diff(map[string]int{"list": 4, "create": total}, count(client)); diff != "" {
		t.Errorf("first start (-want +got):\n%s", diff)
	}
	client.ClearActions()
	if err := Ensure(ctx, client, Optional{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"list": 4}, count(client)); diff != "" {
		t.Errorf("second start (-want +got):\n%s", diff)
	}
}

func TestEnsureExtendsAndNeverRemoves(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	if err := ensure(ctx, client, small()); err != nil {
		t.Fatal(err)
	}
	rbac := client.RbacV1()
	extra := rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"things"}, Verbs: []string{"get"}}

	change := func(name string, edit func(*rbacv1.ClusterRole)) {
		role, err := rbac.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		edit(role)
		if _, err := rbac.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change("system:kube-dns", func(r *rbacv1.ClusterRole) { r.Rules = []rbacv1.PolicyRule{extra} })
	change("system:heapster", func(r *rbacv1.ClusterRole) {
		r.Rules = nil
		r.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	})
	change("view", func(r *rbacv1.ClusterRole) { r.Rules = []rbacv1.PolicyRule{extra} })
	// A binding's role cannot change, so a wrong one is replaced.
	wrong := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:basic-user"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "other"}}
	if _, err := rbac.ClusterRoleBindings().Update(ctx, wrong, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	added := group("admins")
	binding, err := rbac.ClusterRoleBindings().Get(ctx, "system:monitoring", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding.Subjects = []rbacv1.Subject{added}
	if _, err := rbac.ClusterRoleBindings().Update(ctx, binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := ensure(ctx, client, small()); err != nil {
		t.Fatal(err)
	}

	get := func(name string) *rbacv1.ClusterRole {
		role, err := rbac.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return role
	}
	if rules := get("system:kube-dns").Rules; len(rules) != 5 || !cmp.Equal(rules[0], extra) {
		t.Errorf("kube-dns: %v; want the added rule and the four missing ones (one verb and resource each)", rules)
	}
	if rules := get("system:heapster").Rules; len(rules) != 0 {
		t.Errorf("a protected role was extended: %v", rules)
	}
	if rules := get("view").Rules; len(rules) != 1 {
		t.Errorf("the rules of an aggregated role were changed: %v", rules)
	}
	binding, err = rbac.ClusterRoleBindings().Get(ctx, "system:monitoring", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []rbacv1.Subject{added, group("system:monitoring")}; !cmp.Equal(binding.Subjects, want) {
		t.Errorf("subjects %v, want %v", binding.Subjects, want)
	}
	binding, err = rbac.ClusterRoleBindings().Get(ctx, "system:basic-user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if binding.RoleRef.Name != "system:basic-user" {
		t.Errorf("a binding to the wrong role was kept: %v", binding.RoleRef)
	}
}

// TestEnsureBesideAnotherServer: another server creates each object between the list and the write.
func TestEnsureBesideAnotherServer(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	client.PrependReactor("create", "clusterroles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj := action.(clienttesting.CreateAction).GetObject()
		_ = client.Tracker().Add(obj.DeepCopyObject())
		return false, nil, nil
	})
	if err := ensure(ctx, client, small()); err != nil {
		t.Fatal(err)
	}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil || len(roles.Items) != len(small().ClusterRoles) {
		t.Errorf("%d roles, error %v", len(roles.Items), err)
	}
}

func TestEnsureRetriesConflicts(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	if err := ensure(ctx, client, small()); err != nil {
		t.Fatal(err)
	}
	role, err := client.RbacV1().ClusterRoles().Get(ctx, "system:kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = nil
	if _, err := client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var conflicts atomic.Int32
	client.PrependReactor("update", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts.Add(1) < attempts {
			return true, nil, apierrors.NewConflict(rbacv1.Resource("clusterroles"), "system:kube-dns", errors.New("changed"))
		}
		return false, nil, nil
	})
	if err := ensure(ctx, client, small()); err != nil {
		t.Errorf("%d conflicts were not retried: %v", conflicts.Load(), err)
	}
}

func TestEnsureReportsWhichObjectFailed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "rolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("disk full")
	})
	err := ensure(context.Background(), client, small())
	if err == nil || !strings.Contains(err.Error(), `bootstrap RoleBinding "`) || !strings.HasSuffix(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
}

func TestGatheredRoles(t *testing.T) {
	p := Default(Optional{})
	find := func(name string) rbacv1.ClusterRole {
		i := slices.IndexFunc(p.ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == name })
		return p.ClusterRoles[i]
	}
	view, edit, admin := find("view"), find("edit"), find("admin")
	if len(view.Rules) == 0 || len(edit.Rules) <= len(view.Rules) || len(admin.Rules) <= len(edit.Rules) {
		t.Fatalf("view, edit and admin have %d, %d and %d rules", len(view.Rules), len(edit.Rules), len(admin.Rules))
	}
	has := func(role rbacv1.ClusterRole, rule rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(role.Rules, func(have rbacv1.PolicyRule) bool { return cmp.Equal(have, rule) })
	}
	for _, rule := range view.Rules {
		if !has(edit, rule) {
			t.Errorf("edit lacks %v of view", rule)
		}
	}
	for _, rule := range edit.Rules {
		if !has(admin, rule) {
			t.Errorf("admin lacks %v of edit", rule)
		}
	}
}
