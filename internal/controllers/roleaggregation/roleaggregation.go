// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roleaggregation sets the rules of ClusterRoles with an aggregationRule to those of all
// ClusterRoles that it selects. Any role may select any other and there are few, so a change
// of one reconciles all of them.
package roleaggregation

import (
	"cmp"
	"context"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/roles"
)

// Name is the controller's identity and field manager.
const Name = "clusterrole-aggregation-controller"

// Add registers the controller. Any ClusterRole requeues all of them.
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

// Reconcile updates all aggregated roles. Its writes wake it again, for roles that aggregate aggregated
// ones.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	known := &rbacv1.ClusterRoleList{}
	if err := r.client.List(ctx, known); err != nil {
		return ctrl.Result{}, err
	}
	slices.SortFunc(known.Items, func(a, b rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	var errs []error
	for i := range known.Items {
		role := &known.Items[i]
		if role.AggregationRule == nil || !role.DeletionTimestamp.IsZero() {
			continue
		}
		rules, err := roles.Gather(role, known.Items)
		if err == nil && !equality.Semantic.DeepEqual(rules, role.Rules) {
			err = r.apply(ctx, role.Name, rules)
		}
		errs = append(errs, err)
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// apply takes over the field rules by server-side apply, and leaves other fields alone.
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
