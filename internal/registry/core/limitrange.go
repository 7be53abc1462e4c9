// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// LimitRange limits what each pod, container or claim of a namespace may request.
var LimitRange = generic.Kind[*corev1.LimitRange]{
	Name: "LimitRange", Plural: "limitranges", ShortNames: []string{"limits"},
	New:     func() *corev1.LimitRange { return &corev1.LimitRange{} },
	NewList: func() runtime.Object { return &corev1.LimitRangeList{} },
	Prepare: func(_ context.Context, r, _ *corev1.LimitRange) {
		if r.Name == "" {
			r.Name = string(uuid.NewUUID())
		}
	},
	Validate:       validateLimitRange,
	Metadata:       generic.Metadata{ValidateAsNew: true},
	CreateOnUpdate: true,
	Table:          generic.Table[*corev1.LimitRange]{Default: true},
}

func validateLimitRange(_ context.Context, c *check.Checker, r *corev1.LimitRange) {
	seen := sets.New[corev1.LimitType]()
	for i := range r.Spec.Limits {
		item, path := &r.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		validateLimitType(c, item.Type, path.Child("type"))
		check.Unique(c, path.Child("type"), seen, item.Type)
		validateLimitNames(c, item, path)
		for _, name := range limited(item) {
			validateLimits(c, name, item, path)
		}
	}
}

func validateLimitType(c *check.Checker, kind corev1.LimitType, path *field.Path) {
	if problems := utilvalidation.IsQualifiedName(string(kind)); len(problems) > 0 {
		c.Invalid(path, kind, problems...)
		return
	}
	switch kind {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return
	}
	if !strings.Contains(string(kind), "/") {
		c.Invalid(path, kind, "must be a standard limit type or fully qualified")
	}
}

// validateLimitNames checks the resources of each limit.
func validateLimitNames(c *check.Checker, item *corev1.LimitRangeItem, path *field.Path) {
	ofContainers := item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer
	check := func(child string, list corev1.ResourceList) {
		for _, name := range sortedKeys(list) {
			resourcename.ValidateForLimitRange(c, name, ofContainers, path.Child(child).Key(string(name)))
		}
	}
	check("max", item.Max)
	check("min", item.Min)
	check("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	if item.Type != corev1.LimitTypePod {
		check("default", item.Default)
		check("defaultRequest", item.DefaultRequest)
	} else {
		notOfPods(c, "default", item.Default, path)
		notOfPods(c, "defaultRequest", item.DefaultRequest, path)
	}
	_, minimum := item.Min[corev1.ResourceStorage]
	_, maximum := item.Max[corev1.ResourceStorage]
	if item.Type == corev1.LimitTypePersistentVolumeClaim && !minimum && !maximum {
		c.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")
	}
}

// notOfPods refuses defaults for pods: only containers have defaults.
func notOfPods(c *check.Checker, child string, list corev1.ResourceList, path *field.Path) {
	if len(list) != 0 {
		c.Forbidden(path.Child(child), "may not be specified when `type` is 'Pod'")
	}
}

// limited returns all resources that an item names anywhere.
func limited(item *corev1.LimitRangeItem) []corev1.ResourceName {
	names := sets.New[corev1.ResourceName]()
	lists := []corev1.ResourceList{item.Max, item.Min, item.MaxLimitRequestRatio}
	if item.Type != corev1.LimitTypePod {
		lists = append(lists, item.Default, item.DefaultRequest)
	}
	for _, list := range lists {
		names = names.Union(sets.KeySet(list))
	}
	return sets.List(names)
}

// amount is one end of a limit, which may be missing.
type amount struct {
	resource.Quantity
	set bool
}

func amountIn(list corev1.ResourceList, name corev1.ResourceName) amount {
	quantity, found := list[name]
	return amount{quantity, found}
}

func (a amount) above(b amount) bool { return a.set && b.set && a.Cmp(b.Quantity) > 0 }

// validateLimits requires min <= defaultRequest <= default <= max for a resource, and a ratio that
// is compatible with these.
func validateLimits(c *check.Checker, name corev1.ResourceName, item *corev1.LimitRangeItem, path *field.Path) {
	low, high := amountIn(item.Min, name), amountIn(item.Max, name)
	limit, request := amountIn(item.Default, name), amountIn(item.DefaultRequest, name)
	if item.Type == corev1.LimitTypePod {
		limit, request = amount{}, amount{}
	}
	invalid := func(child string, value amount, format string, args ...any) {
		c.Invalid(path.Child(child).Key(string(name)), value.Quantity, fmt.Sprintf(format, args...))
	}
	if low.above(high) {
		invalid("min", low, "min value %s is greater than max value %s", low.String(), high.String())
	}
	if low.above(request) {
		invalid("defaultRequest", request, "min value %s is greater than default request value %s", low.String(), request.String())
	}
	if request.above(high) {
		invalid("defaultRequest", request, "default request value %s is greater than max value %s", request.String(), high.String())
	}
	if request.above(limit) {
		invalid("defaultRequest", request, "default request value %s is greater than default limit value %s", request.String(), limit.String())
	}
	if low.above(limit) {
		invalid("default", low, "min value %s is greater than default value %s", low.String(), limit.String())
	}
	if limit.above(high) {
		invalid("default", high, "default value %s is greater than max value %s", limit.String(), high.String())
	}
	if !resourcename.Overcommits(name) && limit.set && request.set && limit.Cmp(request.Quantity) != 0 {
		invalid("defaultRequest", request, "default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)
	}
	validateRatio(c, amountIn(item.MaxLimitRequestRatio, name), low, high, path.Child("maxLimitRequestRatio").Key(string(name)))
}

func validateRatio(c *check.Checker, ratio, low, high amount, path *field.Path) {
	if !ratio.set {
		return
	}
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		c.Invalid(path, ratio.Quantity, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
	}
	if !low.set || !high.set {
		return
	}
	value, possible := float64(ratio.Value()), float64(high.Value())/float64(low.Value())
	if ratio.Value() < resource.MaxMilliValue && low.Value() < resource.MaxMilliValue && high.Value() < resource.MaxMilliValue {
		value, possible = float64(ratio.MilliValue())/1000, float64(high.MilliValue())/float64(low.MilliValue())
	}
	if value > possible {
		c.Invalid(path, ratio.Quantity, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), possible))
	}
}
