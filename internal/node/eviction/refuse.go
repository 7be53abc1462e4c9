// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/util/qos"
)

// Refusal returns why a node with these conditions does not admit a pod, or "". Under memory pressure alone, it admits
// pods that request memory, or tolerate the taint.
func Refusal(logger klog.Logger, conditions []v1.NodeConditionType, pod *v1.Pod) string {
	if len(conditions) == 0 || IsCritical(pod) {
		return ""
	}
	if slices.Equal(conditions, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if qos.GetPodQOS(pod) != v1.PodQOSBestEffort || corehelpers.TolerationsTolerateTaint(logger, pod.Spec.Tolerations, &taint, true) {
			return ""
		}
	}
	return fmt.Sprintf("The node had condition: %v. ", conditions)
}

// The annotations of static pods and their mirror pods.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// systemCritical is the lowest priority of critical pods, that of the class system-cluster-critical.
const systemCritical = 2000000000

// IsCritical reports whether the node never evicts a pod, and admits it under pressure: a static pod or its mirror, or one
// of a critical priority class.
func IsCritical(pod *v1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	return ok && source != sourceAPI || mirror || corehelpers.PodPriority(pod) >= systemCritical
}
