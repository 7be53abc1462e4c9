// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Node is a machine, or the likeness of one. Its agent registers it with a
// status, which is why a status is taken on create.
var Node = generic.Kind[*corev1.Node]{
	Name: "Node", Plural: "nodes", ShortNames: []string{"no"}, ClusterScoped: true,
	New:               func() *corev1.Node { return &corev1.Node{} },
	NewList:           func() runtime.Object { return &corev1.NodeList{} },
	Spec:              func(n *corev1.Node) any { return &n.Spec },
	Status:            func(n *corev1.Node) any { return &n.Status },
	WithoutGeneration: true,
	CreatedWithStatus: true,
	Validate:          validateNode,
	ValidateUpdate:    validateNodeUpdate,
	ValidateStatus:    validateNodeUpdate,
	Fields:            map[string]func(*corev1.Node) string{"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }},
	Columns: []generic.Column[*corev1.Node]{
		{Name: "Status", Description: "The status of the node", Cell: nodeStatus},
		{Name: "Roles", Description: "The roles of the node", Cell: nodeRoles},
		{Name: "Internal-IP", Wide: true, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Cell: nodeAddress(corev1.NodeInternalIP)},
		{Name: "External-IP", Wide: true, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Cell: nodeAddress(corev1.NodeExternalIP)},
		{Name: "OS-Image", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"], Cell: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.OSImage) }},
		{Name: "Kernel-Version", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"], Cell: kernelVersion},
		{Name: "Container-Runtime", Wide: true, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"], Cell: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion) }},
	},
	ColumnsAfterAge: []generic.Column[*corev1.Node]{
		{Name: "Version", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"], Cell: func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion }},
	},
}

func nodeStatus(n *corev1.Node) any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// Labels that tell the roles of a node: node-role.kubernetes.io/<role>, or
// kubernetes.io/role=<role>.
const (
	rolePrefix = "node-role.kubernetes.io/"
	roleLabel  = "kubernetes.io/role"
)

func nodeRoles(n *corev1.Node) any {
	roles := sets.New[string]()
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			roles.Insert(role)
		} else if label == roleLabel && value != "" {
			roles.Insert(value)
		}
	}
	return generic.OrNone(strings.Join(sets.List(roles), ","))
}

func nodeAddress(kind corev1.NodeAddressType) func(*corev1.Node) any {
	return func(n *corev1.Node) any {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return generic.OrNone("")
	}
}

func kernelVersion(n *corev1.Node) any {
	version := orUnknown(n.Status.NodeInfo.KernelVersion)
	if arch := n.Status.NodeInfo.Architecture; arch != "" {
		version += " (" + arch + ")"
	}
	return version
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func validateNode(_ context.Context, n *corev1.Node) field.ErrorList {
	errs := validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))
	errs = append(errs, validateNodeResources(n)...)
	return append(errs, validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
}

func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
		families[strings.Contains(cidr, ":")]++
	}
	if families[false] > 1 || families[true] > 1 {
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
	if slices.Contains(taintEffects, effect) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, effect, taintEffects)}
}

// validateNodeUpdate lets a node get its pod range and provider once.
func validateNodeUpdate(_ context.Context, n, old *corev1.Node) field.ErrorList {
	errs := validateNodeResources(n)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	spec := field.NewPath("spec")
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	provider := spec.Child("providerID")
	switch was, is := old.Spec.ProviderID, n.Spec.ProviderID; {
	case was == "" || was == is:
	case is == "":
		errs = append(errs, field.Invalid(provider, nil, "field cannot be cleared once set").WithOrigin("update").MarkCoveredByDeclarative())
	default:
		errs = append(errs, field.Invalid(provider, nil, "field cannot be modified once set").WithOrigin("update").MarkCoveredByDeclarative())
	}
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}
