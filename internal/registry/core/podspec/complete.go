// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Complete fills in fields that depend on the pod's own metadata. PrepareForCreate calls it after
// DropAlphaFields. The warnings concern deprecated annotations.
func Complete(pod *v1.Pod) (warnings []string) {
	resolveLabelKeys(pod)
	return fieldsFromAppArmor(pod)
}

// resolveLabelKeys adds matchLabelKeys and mismatchLabelKeys to the selectors
// that they complete, with the values of the pod's labels (KEP-3633, KEP-3243).
func resolveLabelKeys(pod *v1.Pod) {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAffinity != nil {
		resolveTerms(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		resolveTerms(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
	for _, constraint := range pod.Spec.TopologySpreadConstraints {
		requireLabels(constraint.LabelSelector, metav1.LabelSelectorOpIn, constraint.MatchLabelKeys, pod.Labels)
	}
}

func resolveTerms(required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, labels map[string]string) {
	resolve := func(term *v1.PodAffinityTerm) {
		requireLabels(term.LabelSelector, metav1.LabelSelectorOpIn, term.MatchLabelKeys, labels)
		requireLabels(term.LabelSelector, metav1.LabelSelectorOpNotIn, term.MismatchLabelKeys, labels)
	}
	for i := range required {
		resolve(&required[i])
	}
	for i := range preferred {
		resolve(&preferred[i].PodAffinityTerm)
	}
}

// requireLabels leaves a nil selector alone: it matches nothing as it is.
func requireLabels(selector *metav1.LabelSelector, operator metav1.LabelSelectorOperator, keys []string, labels map[string]string) {
	if selector == nil {
		return
	}
	for _, key := range keys {
		if value, found := labels[key]; found {
			selector.MatchExpressions = append(selector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}

const olderAppArmor = `deprecated since v1.30; use the "appArmorProfile" field instead`

// fieldsFromAppArmor copies profiles from annotations to the fields that
// replaced them (KEP-24), so that a node reads fields only.
func fieldsFromAppArmor(pod *v1.Pod) (warnings []string) {
	if isWindows(&pod.Spec) {
		return nil
	}
	var ofPod *v1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		ofPod = pod.Spec.SecurityContext.AppArmorProfile
	}
	for _, container := range allContainers(&pod.Spec, nil) {
		key := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Name
		annotation, found := pod.Annotations[key]
		security := container.SecurityContext
		if !found || security != nil && security.AppArmorProfile != nil {
			continue
		}
		profile := annotatedAppArmor(annotation)
		if profile != nil && equality.Semantic.DeepEqual(profile, ofPod) {
			continue
		}
		warnings = append(warnings, field.NewPath("metadata", "annotations").Key(key).String()+": "+olderAppArmor)
		if profile == nil {
			continue
		}
		if security == nil {
			container.SecurityContext = &v1.SecurityContext{}
		}
		container.SecurityContext.AppArmorProfile = profile
	}
	return warnings
}

// annotatedAppArmor returns the profile that an annotation names; nil if there is no valid one.
func annotatedAppArmor(annotation string) *v1.AppArmorProfile {
	switch annotation {
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	}
	name, isLocal := strings.CutPrefix(annotation, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !isLocal {
		return nil
	}
	profile := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	if len(check.Run(func(c *check.Checker) { validateAppArmor(c, profile, nil) })) > 0 {
		return nil
	}
	return profile
}
