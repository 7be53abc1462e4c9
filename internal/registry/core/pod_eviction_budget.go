// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
)

// The decision of a PodDisruptionBudget about an eviction.

// budgetsOf returns the budgets that apply to the pod.
func (s *evictionStore) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]policyv1.PodDisruptionBudget, error) {
	list, err := s.budgets.PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(budget policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		return err != nil || !selector.Matches(labels.Set(pod.Labels))
	}), nil
}

// uncounted reports whether an eviction is not a disruption: a pod that is not ready is not one of
// the healthy pods that the budget protects (KEP-3017).
func uncounted(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) bool {
	if podutils.IsPodReady(pod) {
		return false
	}
	status := &budget.Status
	return ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow ||
		status.DesiredHealthy > 0 && status.CurrentHealthy >= status.DesiredHealthy
}

// count takes one disruption from the budget, if it has any left.
func (s *evictionStore) count(ctx context.Context, pod *corev1.Pod, budget policyv1.PodDisruptionBudget, dryRun bool) error {
	budgets, stale := s.budgets.PodDisruptionBudgets(pod.Namespace), false
	return retry.RetryOnConflict(evictionRetry, func() error {
		if stale {
			fresh, err := budgets.Get(ctx, budget.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			budget = *fresh
		}
		stale = true
		if err := allows(&budget); err != nil || dryRun {
			return err
		}
		_, err := budgets.UpdateStatus(ctx, disrupted(&budget, pod.Name, metav1.NewTime(s.pods.Clock.Now())), metav1.UpdateOptions{})
		return err
	})
}

// disrupted returns the budget after the eviction of the pod. It records the pod until the budget's
// controller has observed the deletion.
func disrupted(budget *policyv1.PodDisruptionBudget, pod string, now metav1.Time) *policyv1.PodDisruptionBudget {
	out := budget.DeepCopy()
	out.Status.DisruptionsAllowed--
	if out.Status.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(out)
	}
	if out.Status.DisruptedPods == nil {
		out.Status.DisruptedPods = map[string]metav1.Time{}
	}
	out.Status.DisruptedPods[pod] = now
	return out
}

// maxDisruptedPods limits the evictions that the budget's controller has not observed. There are
// more only if the controller does not work.
const maxDisruptedPods = 2000

var budgetResource = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}

// allows refuses an eviction if the budget is exhausted.
func allows(budget *policyv1.PodDisruptionBudget) error {
	status := &budget.Status
	switch {
	case status.ObservedGeneration < budget.Generation:
		return tooManyRequests(budget.Name)
	case status.DisruptionsAllowed < 0:
		return because(apierrors.NewForbidden(budgetResource, budget.Name, errors.New("pdb disruptions allowed is negative")),
			"The disruption budget %s does not allow evicting pods currently: pdb disruptions allowed is negative", budget.Name)
	case len(status.DisruptedPods) > maxDisruptedPods:
		return because(apierrors.NewForbidden(budgetResource, budget.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller")),
			"The disruption budget %s does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", budget.Name)
	case status.DisruptionsAllowed == 0:
		return because(apierrors.NewTooManyRequests(wouldViolate, 0), "%s", whyNone(budget))
	}
	return nil
}

const wouldViolate = "Cannot evict pod as it would violate the pod's disruption budget."

// tooManyRequests returns the error that makes the client retry.
func tooManyRequests(budget string) error {
	return because(apierrors.NewTooManyRequests(wouldViolate, 10), "The disruption budget %s is still being processed by the server.", budget)
}

func because(err *apierrors.StatusError, format string, args ...any) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...),
	})
	return err
}

// whyNone explains why the budget allows no disruption. If the controller could not compute it, the
// numbers of healthy pods are meaningless.
func whyNone(budget *policyv1.PodDisruptionBudget) string {
	name, status := budget.Name, &budget.Status
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case explained && condition.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", name, condition.Message)
	case status.CurrentHealthy <= status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", name, status.DesiredHealthy, status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", name, condition.Reason, condition.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", name)
}
