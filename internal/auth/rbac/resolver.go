// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"iter"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	informers "k8s.io/client-go/informers/rbac/v1"
	listers "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// subjectIndex is the name of the index of bindings by subject.
const subjectIndex = "rbac.subject"

// Resolver finds the rules that apply to a user. It reads only from caches.
type Resolver struct {
	roles               listers.RoleLister
	clusterRoles        listers.ClusterRoleLister
	roleBindings        cache.Indexer
	clusterRoleBindings cache.Indexer
}

// NewResolver returns a Resolver that reads from the given informers. It adds indexes to the
// informers of bindings, so call it before they are started.
func NewResolver(rbac informers.Interface) (*Resolver, error) {
	roleBindings := rbac.RoleBindings().Informer()
	if err := addIndex(roleBindings, indexRoleBinding); err != nil {
		return nil, fmt.Errorf("index RoleBindings: %w", err)
	}
	clusterRoleBindings := rbac.ClusterRoleBindings().Informer()
	if err := addIndex(clusterRoleBindings, indexClusterRoleBinding); err != nil {
		return nil, fmt.Errorf("index ClusterRoleBindings: %w", err)
	}
	return &Resolver{
		roles:               rbac.Roles().Lister(),
		clusterRoles:        rbac.ClusterRoles().Lister(),
		roleBindings:        roleBindings.GetIndexer(),
		clusterRoleBindings: clusterRoleBindings.GetIndexer(),
	}, nil
}

// addIndex adds the index of subjects to an informer, which several resolvers may share.
func addIndex(informer cache.SharedIndexInformer, index cache.IndexFunc) error {
	if _, ok := informer.GetIndexer().GetIndexers()[subjectIndex]; ok {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{subjectIndex: index})
}

// grant is a binding that applies to a user.
type grant struct {
	kind      string // of the binding
	name      string
	namespace string
	role      rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

// describe describes the grant in upstream's words, for audit logs and "kubectl auth can-i".
func (g grant) describe(keys []string) string {
	name := g.name
	if g.namespace != "" {
		name += "/" + g.namespace
	}
	return fmt.Sprintf("%s %q of %s %q to %s", g.kind, name, g.role.Kind, g.role.Name,
		describeSubject(firstSubject(g.subjects, keys, g.namespace), g.namespace))
}

func describeSubject(subject rbacv1.Subject, bindingNamespace string) string {
	name := subject.Name
	if subject.Kind == rbacv1.ServiceAccountKind {
		namespace := subject.Namespace
		if namespace == "" {
			namespace = bindingNamespace
		}
		name += "/" + namespace
	}
	return fmt.Sprintf("%s %q", subject.Kind, name)
}

// grants yields the bindings that apply to a user with these keys: ClusterRoleBindings, then the
// RoleBindings of the namespace. A binding of several of the user's groups is yielded for each
// group.
func (r *Resolver) grants(keys []string, namespace string) iter.Seq[grant] {
	return func(yield func(grant) bool) {
		for _, key := range keys {
			// ByIndex fails only for an index that does not exist.
			bindings, _ := r.clusterRoleBindings.ByIndex(subjectIndex, key)
			for _, obj := range bindings {
				b := obj.(*rbacv1.ClusterRoleBinding)
				if !yield(grant{kind: "ClusterRoleBinding", name: b.Name, role: b.RoleRef, subjects: b.Subjects}) {
					return
				}
			}
		}
		if namespace == "" {
			return
		}
		for _, key := range keys {
			bindings, _ := r.roleBindings.ByIndex(subjectIndex, namespaced(namespace, key))
			for _, obj := range bindings {
				b := obj.(*rbacv1.RoleBinding)
				if !yield(grant{kind: "RoleBinding", name: b.Name, namespace: b.Namespace, role: b.RoleRef, subjects: b.Subjects}) {
					return
				}
			}
		}
	}
}

// RulesOf returns the rules of the role that a binding in a namespace (none for
// a ClusterRoleBinding) refers to.
func (r *Resolver) RulesOf(ref rbacv1.RoleRef, bindingNamespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := r.roles.Roles(bindingNamespace).Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := r.clusterRoles.Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
}

// PolicyRules returns all rules that apply to a user, cluster-wide and in a namespace. Along with
// an error it returns the rules that could be resolved, because rules only add permissions.
func (r *Resolver) PolicyRules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	// A ClusterRoleBinding has no namespace, so these two identify a binding.
	type id struct{ namespace, name string }
	var (
		all  []rbacv1.PolicyRule
		errs []error
		seen = map[id]bool{}
	)
	for g := range r.grants(keysOf(u), namespace) {
		if seen[id{g.namespace, g.name}] {
			continue
		}
		seen[id{g.namespace, g.name}] = true
		rules, err := r.RulesOf(g.role, g.namespace)
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, rules...)
	}
	return all, utilerrors.NewAggregate(errs)
}
