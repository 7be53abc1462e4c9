// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

func validateNode(_ context.Context, n *corev1.Node) field.ErrorList {
	metadata := field.NewPath("metadata")
	errs := validateTaints(n.Spec.Taints, metadata.Child("taints"))
	errs = append(errs, validateAvoidPods(n.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, validateNodeResources(n)...)
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(metadata.Child("nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	return append(errs, validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
}

// validatePodCIDRs wants one range, or one of each family.
func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) < 2 {
		return errs
	}
	dual, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !dual || len(cidrs) > 2 {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func validateNodeResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	status := field.NewPath("status")
	for name, quantity := range n.Status.Capacity {
		errs = append(errs, podspec.ValidateResourceQuantity(name, quantity, status.Child("capacity", string(name)))...)
	}
	for name, quantity := range n.Status.Allocatable {
		errs = append(errs, podspec.ValidateResourceQuantity(name, quantity, status.Child("allocatable", string(name)))...)
	}
	return errs
}

// featureName is what a node may call a feature that it declares (KEP-5328).
var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateDeclaredFeatures wants names in order, each once.
func validateDeclaredFeatures(features []string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "declaredFeatures")
	for i, name := range features {
		switch {
		case len(name) > utilvalidation.DNS1123SubdomainMaxLength:
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name, utilvalidation.DNS1123SubdomainMaxLength)))
		case !featureName.MatchString(name):
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name)))
		}
		switch {
		case i == 0 || features[i-1] < name:
		case features[i-1] == name:
			errs = append(errs, field.Duplicate(path.Index(i), name))
		default:
			errs = append(errs, field.Invalid(path.Index(i), name, "list must be sorted alphabetically"))
		}
	}
	return errs
}

// validateAvoidPods checks an old annotation by which a node asks for fewer pods
// of some controllers.
func validateAvoidPods(annotations map[string]string, path *field.Path) field.ErrorList {
	annotation := annotations[corev1.PreferAvoidPodsAnnotationKey]
	if annotation == "" {
		return nil
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(annotation), &avoid); err != nil {
		return field.ErrorList{field.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())}
	}
	var errs field.ErrorList
	for i, entry := range avoid.PreferAvoidPods {
		signature := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
		switch owner := entry.PodSignature.PodController; {
		case owner == nil:
			errs = append(errs, field.Required(signature, ""))
		case owner.Controller == nil || !*owner.Controller:
			errs = append(errs, field.Invalid(signature.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := sets.New[identity]()
	for i, taint := range taints {
		item := path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, item.Child("key"))...)
		if problems := utilvalidation.IsValidLabelValue(taint.Value); len(problems) > 0 {
			errs = append(errs, field.Invalid(item.Child("value"), taint.Value, strings.Join(problems, ";")))
		}
		errs = append(errs, validateTaintEffect(taint.Effect, item.Child("effect"))...)
		id := identity{taint.Key, taint.Effect}
		if seen.Has(id) {
			twice := field.Duplicate(item, taint)
			twice.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, twice)
		}
		seen.Insert(id)
	}
	return errs
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

func validateTaintEffect(effect corev1.TaintEffect, path *field.Path) field.ErrorList {
	switch {
	case effect == "":
		return field.ErrorList{field.Required(path, "")}
	case slices.Contains(taintEffects, effect):
		return nil
	}
	return field.ErrorList{field.NotSupported(path, effect, taintEffects)}
}

func validateNodeUpdate(ctx context.Context, n, old *corev1.Node) field.ErrorList {
	return append(validateNode(ctx, n), validateNodeChange(ctx, n, old)...)
}

// validateNodeChange lets a node get its pod range and provider once.
func validateNodeChange(_ context.Context, n, old *corev1.Node) field.ErrorList {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := validateNodeResources(n)
	errs = append(errs, validateAvoidPods(n.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	errs = append(errs, validateProvider(n.Spec.ProviderID, old.Spec.ProviderID, spec.Child("providerID"))...)
	errs = append(errs, validateTaints(n.Spec.Taints, metadata.Child("taints"))...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}

func validateProvider(id, old string, path *field.Path) field.ErrorList {
	message := "field cannot be modified once set"
	switch {
	case old == "" || old == id:
		return nil
	case id == "":
		message = "field cannot be cleared once set"
	}
	return field.ErrorList{field.Invalid(path, nil, message).WithOrigin("update").MarkCoveredByDeclarative()}
}
