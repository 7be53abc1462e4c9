// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A subject key is the index key of a binding's subject: "u:" and the name of a user, or "g:" and the
// name of a group. A service account has the key of the user that it authenticates as. In the index of
// RoleBindings, the namespace precedes the key.
const (
	userKey  = "u:"
	groupKey = "g:"
)

// subjectKey returns the key of a binding's subject, and whether there is one. A service account
// without namespace is in the namespace of its RoleBinding; in a ClusterRoleBinding it matches no
// user.
func subjectKey(subject rbacv1.Subject, bindingNamespace string) (string, bool) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return userKey + subject.Name, true
	case rbacv1.GroupKind:
		return groupKey + subject.Name, true
	case rbacv1.ServiceAccountKind:
		namespace := subject.Namespace
		if namespace == "" {
			namespace = bindingNamespace
		}
		return userKey + serviceaccount.MakeUsername(namespace, subject.Name), namespace != ""
	default:
		return "", false
	}
}

// keysOf returns the keys of a user's name and groups.
func keysOf(u user.Info) []string {
	groups := u.GetGroups()
	keys := make([]string, 0, 1+len(groups))
	keys = append(keys, userKey+u.GetName())
	for _, group := range groups {
		keys = append(keys, groupKey+group)
	}
	return keys
}

// namespaced returns the index key of a subject in the bindings of a namespace. Names of namespaces
// have no slash.
func namespaced(namespace, key string) string {
	return namespace + "/" + key
}

func indexClusterRoleBinding(obj any) ([]string, error) {
	binding, ok := obj.(*rbacv1.ClusterRoleBinding)
	if !ok {
		return nil, fmt.Errorf("index subjects: %T is not a ClusterRoleBinding", obj)
	}
	return indexSubjects(binding.Subjects, ""), nil
}

func indexRoleBinding(obj any) ([]string, error) {
	binding, ok := obj.(*rbacv1.RoleBinding)
	if !ok {
		return nil, fmt.Errorf("index subjects: %T is not a RoleBinding", obj)
	}
	keys := indexSubjects(binding.Subjects, binding.Namespace)
	for i := range keys {
		keys[i] = namespaced(binding.Namespace, keys[i])
	}
	return keys, nil
}

func indexSubjects(subjects []rbacv1.Subject, bindingNamespace string) []string {
	keys := make([]string, 0, len(subjects))
	for _, subject := range subjects {
		if key, ok := subjectKey(subject, bindingNamespace); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// firstSubject returns the first subject of a binding whose key is one of the user's keys.
func firstSubject(subjects []rbacv1.Subject, keys []string, bindingNamespace string) rbacv1.Subject {
	for _, subject := range subjects {
		if key, ok := subjectKey(subject, bindingNamespace); ok && slices.Contains(keys, key) {
			return subject
		}
	}
	return rbacv1.Subject{}
}
