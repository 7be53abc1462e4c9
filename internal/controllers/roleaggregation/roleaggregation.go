// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roleaggregation fills in ClusterRoles with an aggregationRule: their
// rules are those of all ClusterRoles that the rule's selectors choose. Any
// ClusterRole may have been chosen by any other, and there are not many, so that a
// change of one looks at all of them.
package roleaggregation

import (
	"cmp"
	"context"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/control"
)

// Name is the controller's identity, and the manager of the rules that it writes.
const Name = "clusterrole-aggregation-controller"

// Add registers the controller: woken by any ClusterRole, for all of them.
func Add(env control.Env) error {
	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		Watches(&rbacv1.ClusterRole{}, handler.EnqueueRequestsFromMapFunc(all)).
		Complete(&reconciler{client: env.Client})
}

type reconciler struct {
	client client.Client
}

// Reconcile brings every aggregating role up to date. What is written wakes it
// again, so that roles which aggregate aggregating ones follow.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	roles := &rbacv1.ClusterRoleList{}
	if err := r.client.List(ctx, roles); err != nil {
		return ctrl.Result{}, err
	}
	slices.SortFunc(roles.Items, func(a, b rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	var errs []error
	for i := range roles.Items {
		role := &roles.Items[i]
		if role.AggregationRule == nil || !role.DeletionTimestamp.IsZero() {
			continue
		}
		rules, err := gather(role, roles.Items)
		if err == nil && !equality.Semantic.DeepEqual(rules, role.Rules) {
			err = r.apply(ctx, role.Name, rules)
		}
		errs = append(errs, err)
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// gather returns the rules of all roles that an aggregating role selects, in the
// order of its selectors and of their names, each rule once.
func gather(role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// apply takes the rules over from whoever wrote them, and leaves all else alone.
func (r *reconciler) apply(ctx context.Context, name string, rules []rbacv1.PolicyRule) error {
	role := applyrbacv1.ClusterRole(name)
	for _, rule := range rules {
		role.WithRules(&applyrbacv1.PolicyRuleApplyConfiguration{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources,
			ResourceNames: rule.ResourceNames, NonResourceURLs: rule.NonResourceURLs,
		})
	}
	return r.client.Apply(ctx, role, client.ForceOwnership, client.FieldOwner(Name))
}
