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
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
)

func validateNode(_ context.Context, c *check.Checker, n *corev1.Node) {
	metadata := field.NewPath("metadata")
	validateTaints(c, n.Spec.Taints, metadata.Child("taints"))
	validateAvoidPods(c, n.Annotations, metadata.Child("annotations"))
	validateNodeResources(c, n)
	validateDeclaredFeatures(c, n.Status.DeclaredFeatures)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		c.Invalid(metadata.Child("nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero")
	}
	validatePodCIDRs(c, n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))
}

// validatePodCIDRs requires one range, or one of each family.
func validatePodCIDRs(c *check.Checker, cidrs []string, path *field.Path) {
	for i, cidr := range cidrs {
		c.CIDR(path.Index(i), cidr, nil)
	}
	if len(cidrs) < 2 {
		return
	}
	dual, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		c.Add(field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !dual || len(cidrs) > 2 {
		c.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family")
	}
}

func validateNodeResources(c *check.Checker, n *corev1.Node) {
	status := field.NewPath("status")
	for name, quantity := range n.Status.Capacity {
		resourcename.ValidateQuantity(c, name, quantity, status.Child("capacity", string(name)))
	}
	for name, quantity := range n.Status.Allocatable {
		resourcename.ValidateQuantity(c, name, quantity, status.Child("allocatable", string(name)))
	}
}

// featureName matches names of declared features (KEP-5328).
var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateDeclaredFeatures requires sorted, unique names.
func validateDeclaredFeatures(c *check.Checker, features []string) {
	path := field.NewPath("status", "declaredFeatures")
	for i, name := range features {
		switch {
		case len(name) > utilvalidation.DNS1123SubdomainMaxLength:
			c.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name, utilvalidation.DNS1123SubdomainMaxLength))
		case !featureName.MatchString(name):
			c.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name))
		}
		switch {
		case i == 0 || features[i-1] < name:
		case features[i-1] == name:
			c.Duplicate(path.Index(i), name)
		default:
			c.Invalid(path.Index(i), name, "list must be sorted alphabetically")
		}
	}
}

// validateAvoidPods checks an old annotation that lists controllers whose pods should avoid the
// node.
func validateAvoidPods(c *check.Checker, annotations map[string]string, path *field.Path) {
	annotation := annotations[corev1.PreferAvoidPodsAnnotationKey]
	if annotation == "" {
		return
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(annotation), &avoid); err != nil {
		c.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())
		return
	}
	for i, entry := range avoid.PreferAvoidPods {
		signature := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
		switch owner := entry.PodSignature.PodController; {
		case owner == nil:
			c.Required(signature, "")
		case owner.Controller == nil || !*owner.Controller:
			c.Invalid(signature.Child("PodController", "Controller"), false, "must point to a controller")
		}
	}
}

func validateTaints(c *check.Checker, taints []corev1.Taint, path *field.Path) {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := sets.New[identity]()
	for i, taint := range taints {
		item := path.Index(i)
		c.LabelName(item.Child("key"), taint.Key)
		if problems := utilvalidation.IsValidLabelValue(taint.Value); len(problems) > 0 {
			c.Invalid(item.Child("value"), taint.Value, strings.Join(problems, ";"))
		}
		validateTaintEffect(c, taint.Effect, item.Child("effect"))
		id := identity{taint.Key, taint.Effect}
		if seen.Has(id) {
			twice := field.Duplicate(item, taint)
			twice.Detail = "taints must be unique by key and effect pair"
			c.Add(twice)
		}
		seen.Insert(id)
	}
}

func validateTaintEffect(c *check.Checker, effect corev1.TaintEffect, path *field.Path) {
	check.RequiredOneOf(c, path, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func validateNodeUpdate(ctx context.Context, c *check.Checker, n, old *corev1.Node) {
	validateNode(ctx, c, n)
	validateNodeChange(ctx, c, n, old)
}

// validateNodeChange allows the pod ranges and the provider ID of a node to be set once.
func validateNodeChange(_ context.Context, c *check.Checker, n, old *corev1.Node) {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	validateNodeResources(c, n)
	validateAvoidPods(c, n.Annotations, metadata.Child("annotations"))
	validateDeclaredFeatures(c, n.Status.DeclaredFeatures)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		check.Unique(c, field.NewPath("status", "addresses").Index(i), seen, address)
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		c.Forbidden(spec.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`)
	}
	validateProvider(c, n.Spec.ProviderID, old.Spec.ProviderID, spec.Child("providerID"))
	validateTaints(c, n.Spec.Taints, metadata.Child("taints"))
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		c.Forbidden(spec.Child("externalID"), "may not be updated")
	}
}

func validateProvider(c *check.Checker, id, old string, path *field.Path) {
	message := "field cannot be modified once set"
	switch {
	case old == "" || old == id:
		return
	case id == "":
		message = "field cannot be cleared once set"
	}
	c.Declared().Add(field.Invalid(path, nil, message).WithOrigin("update"))
}
