// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// policyResult is the result of the pod failure policy (KEP-3329) for one failed pod.
type policyResult struct {
	// action is the action of the first matching rule, or "".
	action batchv1.PodFailurePolicyAction
	// message describes the match, for the condition if the action is FailJob.
	message string
}

// counts reports whether the failure counts towards the limits.
func (h policyResult) counts() bool { return h.action != batchv1.PodFailurePolicyActionIgnore }

// applyFailurePolicy returns the result of the first matching rule. It ignores rules with unknown
// actions.
func applyFailurePolicy(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) policyResult {
	if policy == nil {
		return policyResult{}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		if why := describeMatch(rule, pod); why != "" && isKnownAction(rule.Action) {
			return policyResult{rule.Action, fmt.Sprintf("%s matching %v rule at index %d", why, rule.Action, i)}
		}
	}
	return policyResult{}
}

func isKnownAction(action batchv1.PodFailurePolicyAction) bool {
	switch action {
	case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailJob:
		return true
	}
	return false
}

// describeMatch describes what in the pod matches the rule. It returns "" if nothing does.
func describeMatch(rule *batchv1.PodFailurePolicyRule, pod *corev1.Pod) string {
	if rule.OnExitCodes != nil {
		for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
			if exitMatches(rule.OnExitCodes, &status) {
				return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v",
					status.Name, pod.Namespace, pod.Name, status.State.Terminated.ExitCode)
			}
		}
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		for _, pattern := range rule.OnPodConditions {
			if condition.Type == pattern.Type && condition.Status == pattern.Status {
				return fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, condition.Type)
			}
		}
	}
	return ""
}

// exitMatches reports whether an exit code matches. Exit code 0 never does.
func exitMatches(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, status *corev1.ContainerStatus) bool {
	ended := status.State.Terminated
	if ended == nil || ended.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != status.Name {
		return false
	}
	switch in := slices.Contains(rule.Values, ended.ExitCode); rule.Operator {
	case batchv1.PodFailurePolicyOnExitCodesOpIn:
		return in
	case batchv1.PodFailurePolicyOnExitCodesOpNotIn:
		return !in
	}
	return false
}

// successRule returns the first rule of the success policy (KEP-3998) that the
// succeeded indexes meet.
func successRule(policy *batchv1.SuccessPolicy, succeeded indexes, completions int) (rule int, met bool) {
	if policy == nil || len(succeeded) == 0 {
		return 0, false
	}
	for i := range policy.Rules {
		if isMet(&policy.Rules[i], succeeded, completions) {
			return i, true
		}
	}
	return 0, false
}

// isMet reports whether the succeeded indexes meet a rule: all of its indexes have succeeded, or as many
// of them as its count. A rule without indexes counts all.
func isMet(rule *batchv1.SuccessPolicyRule, succeeded indexes, completions int) bool {
	if rule.SucceededIndexes == nil {
		return rule.SucceededCount != nil && succeeded.count() >= int(*rule.SucceededCount)
	}
	required := parseIndexes(*rule.SucceededIndexes, completions)
	have := required.countShared(succeeded)
	return len(required) > 0 && (have == required.count() || rule.SucceededCount != nil && have >= int(*rule.SucceededCount))
}
