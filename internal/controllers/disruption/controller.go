// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/notices"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// Name is the controller's identity.
	Name = "disruption-controller"
	// Source is the source of its events.
	Source = "controllermanager"

	workers = 4
)

// Add registers the controller. It watches budgets and the pods that they select.
func Add(env control.Env) error {
	r := newReconciler(env)
	err := ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.budgetsOf), builder.WithPredicates(changesHealth())).
		Complete(r)
	if err != nil {
		return err
	}
	return addStale(env)
}

type reconciler struct {
	client  client.Client
	events  record.EventRecorder
	clock   clock.PassiveClock
	notices *notices.Board
	scales  scales
}

func newReconciler(env control.Env) *reconciler {
	return &reconciler{
		client: env.Client, events: env.Events, clock: env.Clock,
		notices: notices.NewBoard(env.Events, env.Clock),
		scales:  scales{client: env.Client, served: env.Discovery},
	}
}

// Reconcile brings the status of one budget up to date. It does so during an ownership hold, too: a
// stale status would allow evictions that the budget forbids.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	budget := &policyv1.PodDisruptionBudget{}
	if err := r.client.Get(ctx, req.NamespacedName, budget); err != nil {
		if apierrors.IsNotFound(err) {
			r.notices.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status, next, failure := r.compute(ctx, budget)
	if failure != nil {
		status = failedStatus(budget, failure)
	}
	// The update fails if an eviction was counted since the cached version, which wakes the controller.
	if err := owned.IgnoreStale(r.report(ctx, budget, status)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, failure
}

// compute returns the status of a budget, and when it changes without an event (0 for never).
func (r *reconciler) compute(ctx context.Context, budget *policyv1.PodDisruptionBudget) (status policyv1.PodDisruptionBudgetStatus, next time.Duration, err error) {
	var found []notices.Notice
	defer func() { r.notices.Post(budget, found) }()
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		found = append(found, notices.Warning("NoPods", fmt.Sprintf("Failed to get pods: %v", err)))
		return status, 0, err
	}
	selected, err := pods.List(ctx, r.client, client.InNamespace(budget.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return status, 0, err
	}
	if len(selected) == 0 {
		found = append(found, notices.Normal("NoPods", "No matching pods found"))
	}
	expected, desired, unmanaged, err := r.expect(ctx, budget, selected)
	if err != nil {
		found = append(found, notices.Warning("CalculateExpectedPodCountFailed", fmt.Sprintf("Failed to calculate the number of expected pods: %v", err)))
		return status, 0, err
	}
	if len(unmanaged) > 0 {
		found = append(found, notices.Warning("UnmanagedPods", fmt.Sprintf("Pods selected by this PodDisruptionBudget (selector: %v) were found "+
			"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", budget.Spec.Selector)))
	}
	pending, kept, next := evicted(budget.Status.DisruptedPods, selected, r.clock.Now())
	for _, pod := range kept {
		r.events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
	}
	return statusOf(budget, selected, pending, expected, desired), next, nil
}

// expect returns how many pods the budget expects, how many of them must be healthy, and the pods
// whose owners are needed but missing.
func (r *reconciler) expect(ctx context.Context, budget *policyv1.PodDisruptionBudget, selected []*corev1.Pod) (expected, desired int, unmanaged []string, err error) {
	total := 0
	if needsScale(&budget.Spec) {
		if total, unmanaged, err = r.scales.total(ctx, selected); err != nil {
			return 0, 0, nil, err
		}
	}
	expected, desired, err = requirement(&budget.Spec, len(selected), total)
	return expected, desired, unmanaged, err
}

// report writes the status if it has changed.
func (r *reconciler) report(ctx context.Context, budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) error {
	if apiequality.Semantic.DeepEqual(budget.Status, status) {
		return nil
	}
	updated := budget.DeepCopy()
	updated.Status = status
	return r.client.Status().Update(ctx, updated)
}
