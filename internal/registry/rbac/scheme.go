// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder(registerDefaults)

// AddToScheme adds the defaults and declared validations of the group's types to a scheme that has
// the types.
var AddToScheme = localSchemeBuilder.AddToScheme

func registerDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&rbacv1.RoleBinding{}, func(obj any) { defaultRoleBinding(obj.(*rbacv1.RoleBinding)) })
	scheme.AddTypeDefaultingFunc(&rbacv1.ClusterRoleBinding{}, func(obj any) { defaultClusterRoleBinding(obj.(*rbacv1.ClusterRoleBinding)) })
	return nil
}

func defaultRoleBinding(b *rbacv1.RoleBinding) {
	b.RoleRef.APIGroup = cmp.Or(b.RoleRef.APIGroup, rbacv1.GroupName)
	defaultSubjects(b.Subjects)
}

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) {
	b.RoleRef.APIGroup = cmp.Or(b.RoleRef.APIGroup, rbacv1.GroupName)
	defaultSubjects(b.Subjects)
}

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			s.APIGroup = cmp.Or(s.APIGroup, rbacv1.GroupName)
		}
	}
}
