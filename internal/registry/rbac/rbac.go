// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Escalation rejects roles and bindings that grant permissions the caller does not have.
type Escalation interface {
	CheckRole(ctx context.Context, role *rbacv1.Role) error
	CheckClusterRole(ctx context.Context, role, old *rbacv1.ClusterRole) error
	CheckRoleBinding(ctx context.Context, binding *rbacv1.RoleBinding) error
	CheckClusterRoleBinding(ctx context.Context, binding *rbacv1.ClusterRoleBinding) error
}

// Group is rbac.authorization.k8s.io.
func Group(e Escalation) generic.Group {
	return generic.Group{
		Name:     rbacv1.GroupName,
		Priority: 17000,
		Scheme:   []func(*runtime.Scheme) error{rbacv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			role(e), roleBinding(e), clusterRole(e), clusterRoleBinding(e),
		}}},
	}
}

func role(e Escalation) generic.Kind[*rbacv1.Role] {
	return generic.Kind[*rbacv1.Role]{
		Name: "Role", Plural: "roles",
		New:            func() *rbacv1.Role { return &rbacv1.Role{} },
		NewList:        func() runtime.Object { return &rbacv1.RoleList{} },
		Metadata:       generic.Metadata{ValidName: pathvalidation.ValidatePathSegmentName},
		Validate:       validateRole,
		CreateOnUpdate: true,
		Hooks: guard(
			func(ctx context.Context, r, _ *rbacv1.Role) error { return e.CheckRole(ctx, r) }),
		Table: generic.Table[*rbacv1.Role]{Default: true},
	}
}

func clusterRole(e Escalation) generic.Kind[*rbacv1.ClusterRole] {
	return generic.Kind[*rbacv1.ClusterRole]{
		Name: "ClusterRole", Plural: "clusterroles", ClusterScoped: true,
		New:            func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} },
		NewList:        func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Metadata:       generic.Metadata{ValidName: pathvalidation.ValidatePathSegmentName},
		Validate:       validateClusterRole,
		CreateOnUpdate: true,
		Hooks:          guard(e.CheckClusterRole),
		Table:          generic.Table[*rbacv1.ClusterRole]{Default: true},
	}
}

func roleBinding(e Escalation) generic.Kind[*rbacv1.RoleBinding] {
	return generic.Kind[*rbacv1.RoleBinding]{
		Name: "RoleBinding", Plural: "rolebindings",
		New:            func() *rbacv1.RoleBinding { return &rbacv1.RoleBinding{} },
		NewList:        func() runtime.Object { return &rbacv1.RoleBindingList{} },
		Metadata:       generic.Metadata{ValidName: pathvalidation.ValidatePathSegmentName},
		Validate:       validateRoleBinding,
		ValidateUpdate: validateRoleBindingUpdate,
		ShortCircuits:  true,
		CreateOnUpdate: true,
		Hooks: guard(
			func(ctx context.Context, b, _ *rbacv1.RoleBinding) error { return e.CheckRoleBinding(ctx, b) }),
		Columns: bindingColumns("roleBinding", rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"],
			func(b *rbacv1.RoleBinding) rbacv1.RoleRef { return b.RoleRef },
			func(b *rbacv1.RoleBinding) []rbacv1.Subject { return b.Subjects }),
	}
}

func clusterRoleBinding(e Escalation) generic.Kind[*rbacv1.ClusterRoleBinding] {
	return generic.Kind[*rbacv1.ClusterRoleBinding]{
		Name: "ClusterRoleBinding", Plural: "clusterrolebindings", ClusterScoped: true,
		New:            func() *rbacv1.ClusterRoleBinding { return &rbacv1.ClusterRoleBinding{} },
		NewList:        func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		Metadata:       generic.Metadata{ValidName: pathvalidation.ValidatePathSegmentName},
		Validate:       validateClusterRoleBinding,
		ValidateUpdate: validateClusterRoleBindingUpdate,
		ShortCircuits:  true,
		CreateOnUpdate: true,
		Hooks: guard(
			func(ctx context.Context, b, _ *rbacv1.ClusterRoleBinding) error {
				return e.CheckClusterRoleBinding(ctx, b)
			}),
		Columns: bindingColumns("clusterRoleBinding", rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"],
			func(b *rbacv1.ClusterRoleBinding) rbacv1.RoleRef { return b.RoleRef },
			func(b *rbacv1.ClusterRoleBinding) []rbacv1.Subject { return b.Subjects }),
	}
}

// onlyGCFields reports whether an update changes only fields that the garbage collector writes:
// owner references and finalizers. Labels are not among them: a label can aggregate a ClusterRole
// into another.
func onlyGCFields[T generic.Object](obj, old T) bool {
	was := old.DeepCopyObject().(T)
	was.SetOwnerReferences(obj.GetOwnerReferences())
	was.SetFinalizers(obj.GetFinalizers())
	was.SetManagedFields(obj.GetManagedFields())
	return equality.Semantic.DeepEqual(was, obj)
}

// guard runs the escalation check before a write that may grant new permissions.
func guard[T generic.Object](check func(ctx context.Context, obj, old T) error) generic.Hooks[T] {
	return generic.Hooks[T]{
		BeginCreate: func(ctx context.Context, obj T, _ bool) (generic.Finish, error) {
			var none T
			return nil, check(ctx, obj, none)
		},
		BeginUpdate: func(ctx context.Context, obj, old T, _ bool) (generic.Finish, error) {
			if onlyGCFields(obj, old) {
				return nil, nil
			}
			return nil, check(ctx, obj, old)
		},
	}
}

func bindingColumns[T generic.Object](name, doc string, ref func(T) rbacv1.RoleRef, subjects func(T) []rbacv1.Subject) []generic.Column[T] {
	listed := func(kind string) func(T) any {
		return func(obj T) any { return subjectNames(subjects(obj), kind) }
	}
	return []generic.Column[T]{
		{Name: "Role", Description: doc, Cell: func(obj T) any { r := ref(obj); return r.Kind + "/" + r.Name }},
		{Name: "Users", Wide: true, Description: "Users in the " + name, Cell: listed(rbacv1.UserKind)},
		{Name: "Groups", Wide: true, Description: "Groups in the " + name, Cell: listed(rbacv1.GroupKind)},
		{Name: "ServiceAccounts", Wide: true, Description: "ServiceAccounts in the " + name, Cell: listed(rbacv1.ServiceAccountKind)},
	}
}

func subjectNames(subjects []rbacv1.Subject, kind string) string {
	var names []string
	for _, s := range subjects {
		switch {
		case s.Kind != kind:
		case kind == rbacv1.ServiceAccountKind:
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}
