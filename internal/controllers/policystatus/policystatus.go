// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policystatus type-checks the expressions of ValidatingAdmissionPolicies against the
// schemas of the kinds that they match, and writes warnings to the policy's status (KEP-3488).
// Admission ignores the result: an expression that is wrong for one kind may be right for
// another.
package policystatus

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	applyadmissionv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// Name is the controller's identity.
const Name = "validatingadmissionpolicy-status-controller"

const (
	workers = 5
	// manager is the field manager of the status.
	manager = "validatingadmissionpolicy-status"
)

// Add registers the controller. It watches policies, and reads the published schemas when it checks
// one.
func Add(env control.Env) error {
	published, err := discovery.NewDiscoveryClientForConfigAndClient(env.Manager.GetConfig(), env.Manager.GetHTTPClient())
	if err != nil {
		return err
	}
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: published},
		RestMapper:     env.Manager.GetRESTMapper(),
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&admissionv1.ValidatingAdmissionPolicy{}).
		Complete(&reconciler{client: env.Client, check: checker.Check})
}

type reconciler struct {
	client client.Client
	check  func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning
}

// Reconcile checks one policy, once for each generation.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if policy.Generation <= policy.Status.ObservedGeneration {
		return ctrl.Result{}, nil
	}
	checked := applyadmissionv1.TypeChecking()
	for _, w := range r.check(policy.DeepCopy()) {
		checked.WithExpressionWarnings(applyadmissionv1.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	status := applyadmissionv1.ValidatingAdmissionPolicy(policy.Name).WithStatus(
		applyadmissionv1.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checked))
	err := r.client.Status().Apply(ctx, status, client.ForceOwnership, client.FieldOwner(manager))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
