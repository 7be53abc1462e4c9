// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func failedPod(codes map[string]int32, conditions ...corev1.PodConditionType) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	for name, code := range codes {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}})
	}
	for _, c := range conditions {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return pod
}

func onCodes(action batchv1.PodFailurePolicyAction, container *string, op batchv1.PodFailurePolicyOnExitCodesOperator, values ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
		ContainerName: container, Operator: op, Values: values}}
}

func TestPodFailurePolicy(t *testing.T) {
	in, notIn := batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	disrupted := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
	failOnCondition := disrupted
	failOnCondition.Action = batchv1.PodFailurePolicyActionFailJob
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		rules   []batchv1.PodFailurePolicyRule
		action  batchv1.PodFailurePolicyAction
		message string
	}{
		"no rule matches": {failedPod(map[string]int32{"c": 1}), []batchv1.PodFailurePolicyRule{onCodes("FailJob", nil, in, 2), disrupted}, "", ""},
		"exit code": {failedPod(map[string]int32{"c": 42}), []batchv1.PodFailurePolicyRule{disrupted, onCodes("FailJob", nil, in, 42)}, "FailJob",
			"Container c for pod ns/p failed with exit code 42 matching FailJob rule at index 1"},
		"exit code of another container": {failedPod(map[string]int32{"c": 42}), []batchv1.PodFailurePolicyRule{onCodes("FailJob", ptr.To("other"), in, 42)}, "", ""},
		"exit code not in the list":      {failedPod(map[string]int32{"c": 3}), []batchv1.PodFailurePolicyRule{onCodes("FailIndex", nil, notIn, 1, 2)}, "FailIndex", ""},
		"exit code 0 never matches":      {failedPod(map[string]int32{"c": 0}), []batchv1.PodFailurePolicyRule{onCodes("Ignore", nil, notIn, 1)}, "", ""},
		"condition":                      {failedPod(nil, corev1.DisruptionTarget), []batchv1.PodFailurePolicyRule{disrupted}, "Ignore", ""},
		"condition fails the Job": {failedPod(nil, corev1.DisruptionTarget), []batchv1.PodFailurePolicyRule{failOnCondition}, "FailJob",
			"Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"},
		"first matching rule applies": {failedPod(map[string]int32{"c": 1}, corev1.DisruptionTarget),
			[]batchv1.PodFailurePolicyRule{onCodes("Count", nil, in, 1), disrupted}, "Count", ""},
		"rule with unknown action is ignored": {failedPod(map[string]int32{"c": 1}), []batchv1.PodFailurePolicyRule{onCodes("Celebrate", nil, in, 1), onCodes("Count", nil, in, 1)}, "Count", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := applyFailurePolicy(&batchv1.PodFailurePolicy{Rules: test.rules}, test.pod)
			if got.action != test.action || test.message != "" && got.message != test.message {
				t.Errorf("got %+v", got)
			}
			if got.counts() != (test.action != batchv1.PodFailurePolicyActionIgnore) {
				t.Errorf("counts: %v", got.counts())
			}
		})
	}
}

func TestSuccessPolicy(t *testing.T) {
	rule := func(indexes string, count int32) batchv1.SuccessPolicyRule {
		var r batchv1.SuccessPolicyRule
		if indexes != "" {
			r.SucceededIndexes = &indexes
		}
		if count > 0 {
			r.SucceededCount = &count
		}
		return r
	}
	for name, test := range map[string]struct {
		rules     []batchv1.SuccessPolicyRule
		succeeded string
		rule      int
		met       bool
	}{
		"no index has succeeded":                    {[]batchv1.SuccessPolicyRule{rule("0", 0)}, "", 0, false},
		"all required indexes":                      {[]batchv1.SuccessPolicyRule{rule("0-2", 0)}, "0-3", 0, true},
		"some required indexes are missing":         {[]batchv1.SuccessPolicyRule{rule("0-2", 0)}, "0,2,3", 0, false},
		"enough of the required indexes":            {[]batchv1.SuccessPolicyRule{rule("0-2", 2)}, "0,2", 0, true},
		"enough indexes, but not the required ones": {[]batchv1.SuccessPolicyRule{rule("0-2", 2)}, "2,3,4", 0, false},
		"count of any indexes":                      {[]batchv1.SuccessPolicyRule{rule("", 2)}, "3,4", 0, true},
		"the second rule is met":                    {[]batchv1.SuccessPolicyRule{rule("0", 0), rule("", 2)}, "3,4", 1, true},
		"invalid indexes":                           {[]batchv1.SuccessPolicyRule{rule("x", 0)}, "3,4", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, met := successRule(&batchv1.SuccessPolicy{Rules: test.rules}, parseIndexes(test.succeeded, 5), 5)
			if got != test.rule || met != test.met {
				t.Errorf("rule %d, met: %v", got, met)
			}
		})
	}
}
