// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"
)

const (
	// writers is how many objects are written concurrently: enough to fill the commits of the
	// store.
	writers = 16
	// attempts is the number of times that a write is tried on conflicts.
	attempts = 5
)

// Ensure creates the default policy in a cluster. It reads each kind once and writes only objects
// that are missing or lack rules or subjects, so that every start but the first costs four lists.
// It may run on several servers at the same time.
func Ensure(ctx context.Context, client kubernetes.Interface, features Optional) error {
	return ensure(ctx, client, Default(features))
}

func ensure(ctx context.Context, client kubernetes.Interface, policy Policy) error {
	existing, err := list(ctx, client)
	if err != nil {
		return fmt.Errorf("read RBAC objects: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, s := range steps(client, policy, existing) {
		group.Go(func() error { return s.run(ctx) })
	}
	return group.Wait()
}

// objects are the cluster's objects, by namespace and name.
type objects struct {
	rules    map[kindKey]reconciliation.RuleOwner
	bindings map[kindKey]reconciliation.RoleBinding
}

type kindKey struct{ namespace, name string }

func list(ctx context.Context, client kubernetes.Interface) (objects, error) {
	var (
		clusterRoles    *rbacv1.ClusterRoleList
		roles           *rbacv1.RoleList
		clusterBindings *rbacv1.ClusterRoleBindingList
		bindings        *rbacv1.RoleBindingList
	)
	all := metav1.ListOptions{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		clusterRoles, err = client.RbacV1().ClusterRoles().List(ctx, all)
		return err
	})
	group.Go(func() (err error) {
		roles, err = client.RbacV1().Roles("").List(ctx, all)
		return err
	})
	group.Go(func() (err error) {
		clusterBindings, err = client.RbacV1().ClusterRoleBindings().List(ctx, all)
		return err
	})
	group.Go(func() (err error) {
		bindings, err = client.RbacV1().RoleBindings("").List(ctx, all)
		return err
	})
	if err := group.Wait(); err != nil {
		return objects{}, err
	}

	found := objects{rules: map[kindKey]reconciliation.RuleOwner{}, bindings: map[kindKey]reconciliation.RoleBinding{}}
	for i := range clusterRoles.Items {
		o := &clusterRoles.Items[i]
		found.rules[kindKey{"", o.Name}] = reconciliation.ClusterRoleRuleOwner{ClusterRole: o}
	}
	for i := range roles.Items {
		o := &roles.Items[i]
		found.rules[kindKey{o.Namespace, o.Name}] = reconciliation.RoleRuleOwner{Role: o}
	}
	for i := range clusterBindings.Items {
		o := &clusterBindings.Items[i]
		found.bindings[kindKey{"", o.Name}] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: o}
	}
	for i := range bindings.Items {
		o := &bindings.Items[i]
		found.bindings[kindKey{o.Namespace, o.Name}] = reconciliation.RoleBindingAdapter{RoleBinding: o}
	}
	return found, nil
}

// step reconciles one object of the policy.
type step struct {
	kind, name string
	reconcile  func() (reconciliation.ReconcileOperation, bool, error)
}

func (s step) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		operation, protected, err := s.reconcile()
		switch {
		case apierrors.IsConflict(err) && attempt < attempts:
			continue
		case err != nil:
			return fmt.Errorf("bootstrap %s %q: %w", s.kind, s.name, err)
		case operation == reconciliation.ReconcileNone:
			return nil
		case protected:
			logger.Info("Bootstrap policy is incomplete in an object that opted out of updates", "kind", s.kind, "name", s.name)
			return nil
		}
		logger.V(2).Info("Reconciled bootstrap policy", "kind", s.kind, "name", s.name, "operation", operation)
		return nil
	}
}

// steps returns the steps that reconcile the existing objects with the policy.
func steps(client kubernetes.Interface, policy Policy, existing objects) []step {
	var all []step
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	for i := range policy.ClusterRoles {
		role := &policy.ClusterRoles[i]
		found := existing.rules[kindKey{"", role.Name}]
		if found != nil && role.AggregationRule != nil {
			// The aggregation controller maintains the rules of an existing role.
			role.Rules = nil
		}
		all = append(all, ruleStep("ClusterRole", reconciliation.ClusterRoleRuleOwner{ClusterRole: role},
			&rulesClient{RuleOwnerModifier: reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()}, listed: found}))
	}
	for i := range policy.Roles {
		role := &policy.Roles[i]
		all = append(all, ruleStep("Role", reconciliation.RoleRuleOwner{Role: role},
			&rulesClient{RuleOwnerModifier: reconciliation.RoleModifier{Client: rbac, NamespaceClient: namespaces},
				listed: existing.rules[kindKey{role.Namespace, role.Name}]}))
	}
	for i := range policy.ClusterRoleBindings {
		binding := &policy.ClusterRoleBindings[i]
		all = append(all, bindingStep("ClusterRoleBinding", reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding},
			&bindingsClient{RoleBindingModifier: reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()},
				listed: existing.bindings[kindKey{"", binding.Name}]}))
	}
	for i := range policy.RoleBindings {
		binding := &policy.RoleBindings[i]
		all = append(all, bindingStep("RoleBinding", reconciliation.RoleBindingAdapter{RoleBinding: binding},
			&bindingsClient{RoleBindingModifier: reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: namespaces},
				listed: existing.bindings[kindKey{binding.Namespace, binding.Name}]}))
	}
	return all
}

func ruleStep(kind string, role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) step {
	options := reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}
	return step{kind: kind, name: role.GetName(), reconcile: func() (reconciliation.ReconcileOperation, bool, error) {
		result, err := options.Run()
		if err != nil {
			return "", false, err
		}
		return result.Operation, result.Protected, nil
	}}
}

func bindingStep(kind string, binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) step {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}
	return step{kind: kind, name: binding.GetName(), reconcile: func() (reconciliation.ReconcileOperation, bool, error) {
		result, err := options.Run()
		if err != nil {
			return "", false, err
		}
		return result.Operation, result.Protected, nil
	}}
}

// rulesClient serves the first read of a role from the list. A retry after a conflict reads from
// the server.
type rulesClient struct {
	reconciliation.RuleOwnerModifier
	listed reconciliation.RuleOwner
	asked  bool
}

func (c *rulesClient) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	if c.asked {
		return c.RuleOwnerModifier.Get(namespace, name)
	}
	c.asked = true
	if c.listed == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
	}
	return c.listed, nil
}

// bindingsClient does the same for a binding.
type bindingsClient struct {
	reconciliation.RoleBindingModifier
	listed reconciliation.RoleBinding
	asked  bool
}

func (c *bindingsClient) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	if c.asked {
		return c.RoleBindingModifier.Get(namespace, name)
	}
	c.asked = true
	if c.listed == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
	}
	return c.listed, nil
}
