// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ResourceQuota limits the total resources and objects of a namespace.
var ResourceQuota = generic.Kind[*corev1.ResourceQuota]{
	Name: "ResourceQuota", Plural: "resourcequotas", ShortNames: []string{"quota"},
	New:        func() *corev1.ResourceQuota { return &corev1.ResourceQuota{} },
	NewList:    func() runtime.Object { return &corev1.ResourceQuotaList{} },
	Deletion:   generic.Deletion[*corev1.ResourceQuota]{ReturnObject: true},
	Generation: generic.NoGeneration,
	Spec:       func(q *corev1.ResourceQuota) any { return &q.Spec },
	Status:     func(q *corev1.ResourceQuota) any { return &q.Status },
	Validate: func(_ context.Context, c *check.Checker, q *corev1.ResourceQuota) {
		validateQuotaSpec(c, &q.Spec)
	},
	ValidateUpdate: validateQuotaUpdate,
	StatusUpdate:   generic.Update[*corev1.ResourceQuota]{Validate: validateQuotaStatus},
	Warnings:       warnQuota,
	Columns: []generic.Column[*corev1.ResourceQuota]{
		{Name: "Request", Description: "Request represents a minimum amount of cpu/memory that a container may consume.", Cell: func(q *corev1.ResourceQuota) any { return used(q, false) }},
		{Name: "Limit", Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", Cell: func(q *corev1.ResourceQuota) any { return used(q, true) }},
	},
}

// used lists usage and hard limits, of the resources "limits.*" or of all others.
func used(q *corev1.ResourceQuota, limits bool) string {
	var out []string
	for _, name := range sortedKeys(q.Status.Hard) {
		if strings.HasPrefix(string(name), "limits.") == limits {
			have, hard := q.Status.Used[name], q.Status.Hard[name]
			out = append(out, fmt.Sprintf("%s: %s/%s", name, have.String(), hard.String()))
		}
	}
	return strings.Join(out, ", ")
}

func validateQuotaUpdate(_ context.Context, c *check.Checker, q, old *corev1.ResourceQuota) {
	validateQuotaSpec(c, &q.Spec)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		c.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg)
	}
}

func validateQuotaStatus(_ context.Context, c *check.Checker, q, _ *corev1.ResourceQuota) {
	status := field.NewPath("status")
	validateQuotaAmounts(c, q.Status.Hard, status.Child("hard"))
	validateQuotaAmounts(c, q.Status.Used, status.Child("used"))
}

func validateQuotaAmounts(c *check.Checker, list corev1.ResourceList, path *field.Path) {
	for _, name := range sortedKeys(list) {
		at := path.Key(string(name))
		resourcename.ValidateForQuota(c, name, at)
		resourcename.ValidateQuantity(c, name, list[name], at)
	}
}

func validateQuotaSpec(c *check.Checker, spec *corev1.ResourceQuotaSpec) {
	path := field.NewPath("spec")
	validateQuotaAmounts(c, spec.Hard, path.Child("hard"))
	validateScopes(c, spec, path.Child("scopes"))
	validateScopeSelector(c, spec, path.Child("scopeSelector", "matchExpressions"))
}

func validateScopes(c *check.Checker, spec *corev1.ResourceQuotaSpec, path *field.Path) {
	for _, scope := range spec.Scopes {
		if !isScope(scope) {
			c.Invalid(path, spec.Scopes, "unsupported scope")
		}
		for range outOfScope(scope, spec.Hard) {
			c.Invalid(path, spec.Scopes, "unsupported scope applied to resource")
		}
	}
	validateScopePairs(c, sets.New(spec.Scopes...), spec, path)
}

func validateScopeSelector(c *check.Checker, spec *corev1.ResourceQuotaSpec, path *field.Path) {
	if spec.ScopeSelector == nil {
		return
	}
	scopes := sets.New[corev1.ResourceQuotaScope]()
	for _, requirement := range spec.ScopeSelector.MatchExpressions {
		scopes.Insert(requirement.ScopeName)
		if !isScope(requirement.ScopeName) {
			c.Invalid(path.Child("scopeName"), requirement.ScopeName, "unsupported scope")
		}
		for range outOfScope(requirement.ScopeName, spec.Hard) {
			c.Invalid(path, spec.ScopeSelector, "unsupported scope applied to resource")
		}
		validateScopeRequirement(c, requirement, path)
	}
	validateScopePairs(c, scopes, spec, path)
}

// validateScopeRequirement permits only Exists for scopes without named classes.
func validateScopeRequirement(c *check.Checker, requirement corev1.ScopedResourceSelectorRequirement, path *field.Path) {
	operator := path.Child("operator")
	switch requirement.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if requirement.Operator != corev1.ScopeSelectorOpExists {
			c.Invalid(operator, requirement.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
		}
	}
	switch requirement.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(requirement.Values) == 0 {
			c.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(requirement.Values) != 0 {
			c.Invalid(path.Child("values"), requirement.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
		}
	default:
		c.Invalid(operator, requirement.Operator, "not a valid selector operator")
	}
}

// validateScopePairs refuses pairs of scopes that no pod can have both.
func validateScopePairs(c *check.Checker, scopes sets.Set[corev1.ResourceQuotaScope], spec *corev1.ResourceQuotaSpec, path *field.Path) {
	for _, pair := range [][]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if scopes.HasAll(pair...) {
			c.Invalid(path, spec.Scopes, "conflicting scopes")
		}
	}
}

var (
	podCount   = []corev1.ResourceName{corev1.ResourcePods}
	podCompute = []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory}
	claimed = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
)

// scoped are the resources that can be counted within a scope.
var scoped = map[corev1.ResourceQuotaScope][]corev1.ResourceName{
	corev1.ResourceQuotaScopeTerminating:               podCompute,
	corev1.ResourceQuotaScopeNotTerminating:            podCompute,
	corev1.ResourceQuotaScopeNotBestEffort:             podCompute,
	corev1.ResourceQuotaScopePriorityClass:             podCompute,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podCompute,
	corev1.ResourceQuotaScopeBestEffort:                podCount,
	corev1.ResourceQuotaScopeVolumeAttributesClass:     claimed,
}

func isScope(scope corev1.ResourceQuotaScope) bool {
	_, found := scoped[scope]
	return found
}

// outOfScope returns the resources of a list that cannot be counted within a scope.
func outOfScope(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) []corev1.ResourceName {
	return slices.DeleteFunc(sortedKeys(hard), func(name corev1.ResourceName) bool {
		return !isScope(scope) || !resourcename.IsQuota(name) || slices.Contains(scoped[scope], name)
	})
}

// warnQuota warns about hard limits of requests above those of limits, which can never be used up.
func warnQuota(_ context.Context, q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var out []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requests, limits := "requests."+name, "limits."+name
		request, found := q.Spec.Hard[requests]
		if !found && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requests = name
			request, found = q.Spec.Hard[requests]
		}
		limit, limited := q.Spec.Hard[limits]
		if found && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, request.String(), limits, limit.String()))
		}
	}
	return out
}
