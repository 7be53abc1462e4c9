// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAllows(t *testing.T) {
	is := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	crowd := map[string]metav1.Time{}
	for i := range maxDisruptedPods + 1 {
		crowd[fmt.Sprint(i)] = metav1.Time{}
	}
	for name, test := range map[string]struct {
		status policyv1.PodDisruptionBudgetStatus
		code   int32
		after  int32
		cause  string
	}{
		"one":        {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}, 0, 0, ""},
		"unseen":     {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: -1, DisruptionsAllowed: 1}, 429, 10, "The disruption budget b is still being processed by the server."},
		"none":       {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 2}, 429, 0, "The disruption budget b needs 2 healthy pods and has 2 currently"},
		"unknown":    {policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2}, 429, 0, "The disruption budget b does not allow evicting pods currently"},
		"explained":  {policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, Conditions: is("Why", "so")}, 429, 0, "The disruption budget b does not allow evicting pods currently (Why): so"},
		"not synced": {policyv1.PodDisruptionBudgetStatus{Conditions: is(policyv1.SyncFailedReason, "no owner")}, 429, 0, "The disruption budget b does not allow evicting pods currently because it failed sync: no owner"},
		"negative":   {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: -1}, 403, 0, "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative"},
		"crowd":      {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DisruptedPods: crowd}, 403, 0, "The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller"},
	} {
		err := allows(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: test.status})
		if test.code == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, details := status.Status(), status.Status().Details
		if got.Code != test.code || details.RetryAfterSeconds != test.after || len(details.Causes) != 1 ||
			details.Causes[0].Type != policyv1.DisruptionBudgetCause || details.Causes[0].Message != test.cause {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestUncounted(t *testing.T) {
	ready := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	always := new(policyv1.AlwaysAllow)
	for name, test := range map[string]struct {
		pod             corev1.PodStatus
		policy          *policyv1.UnhealthyPodEvictionPolicyType
		healthy, wanted int32
		want            bool
	}{
		"ready":                                {ready, always, 3, 2, false},
		"healthy application":                  {corev1.PodStatus{}, nil, 2, 2, true},
		"unhealthy application":                {corev1.PodStatus{}, new(policyv1.IfHealthyBudget), 1, 2, false},
		"budget that requires no healthy pods": {corev1.PodStatus{}, nil, 0, 0, false},
		"always":                               {corev1.PodStatus{}, always, 1, 2, true},
	} {
		budget := &policyv1.PodDisruptionBudget{
			Spec:   policyv1.PodDisruptionBudgetSpec{UnhealthyPodEvictionPolicy: test.policy},
			Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: test.healthy, DesiredHealthy: test.wanted},
		}
		if got := uncounted(&corev1.Pod{Status: test.pod}, budget); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCountDisruption(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 2}}
	now := metav1.NewTime(time.Unix(1, 0))
	first := disrupted(budget, "a", now)
	if first.Status.DisruptionsAllowed != 1 || len(first.Status.Conditions) != 0 || !first.Status.DisruptedPods["a"].Time.Equal(now.Time) {
		t.Errorf("first: %+v", first.Status)
	}
	last := disrupted(first, "b", now)
	if last.Status.DisruptionsAllowed != 0 || len(last.Status.DisruptedPods) != 2 || len(last.Status.Conditions) != 1 || last.Status.Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("last: %+v", last.Status)
	}
	if len(first.Status.DisruptedPods) != 1 {
		t.Error("the budget in the cache was changed")
	}
}
