// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota evaluates what ResourceQuotas count: the kinds, and the usage of an object.
// k8s.io/apiserver/pkg/quota/v1/generic has the evaluator that counts objects of any kind; this
// package has the evaluators of pods, services, and claims for volumes and devices.
//
// Admission charges requests with them before an object is stored, and the controller counts
// existing objects with them.
package quota

import (
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/clock"
)

// ignored holds the resources that are never counted: those that are not stored, and events.
var ignored = map[schema.GroupResource]struct{}{
	{Resource: "bindings"}:                                                 {},
	{Resource: "componentstatuses"}:                                        {},
	{Resource: "events"}:                                                   {},
	{Group: "events.k8s.io", Resource: "events"}:                           {},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             {},
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       {},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      {},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  {},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: {},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   {},
}

// olderNames holds the names by which quotas counted some kinds before the generic form
// (count/secrets).
var olderNames = map[string]corev1.ResourceName{
	"configmaps":             corev1.ResourceConfigMaps,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"secrets":                corev1.ResourceSecrets,
}

// Configuration returns the configuration of the admission plugin, which evaluates only the
// objects of requests and lists nothing. The objects of a kind that serves shows in its former group too
// are counted by the names of both groups.
func Configuration(c clock.PassiveClock, reader Reader, serves func(schema.GroupVersionResource) bool) quota.Configuration {
	evaluators := Evaluators(nil, c, reader)
	for _, plural := range []string{"daemonsets", "deployments", "replicasets"} {
		former := extensionsv1beta1.SchemeGroupVersion.WithResource(plural)
		if !serves(former) {
			continue
		}
		present := generic.NewObjectCountEvaluator(appsv1.Resource(plural), nil, generic.ObjectCountQuotaResourceNameFor(former.GroupResource()))
		evaluators = append(evaluators, present, moved{present, former.GroupResource()})
	}
	return generic.NewConfiguration(evaluators, ignored)
}

// moved evaluates requests in the former group of a kind as requests in the present one, because the
// objects are the same.
type moved struct {
	quota.Evaluator
	from schema.GroupResource
}

// GroupResource implements quota.Evaluator.
func (m moved) GroupResource() schema.GroupResource { return m.from }

// Lister returns the objects of a kind in a namespace.
type Lister func(resource schema.GroupResource, namespace string) ([]runtime.Object, error)

func (l Lister) of(resource schema.GroupResource) generic.ListFuncByNamespace {
	return func(namespace string) ([]runtime.Object, error) { return l(resource, namespace) }
}

// Evaluators returns the evaluators of the kinds of which quotas count more than the number, and
// of those with an older name. It reads device classes if a quota names them.
func Evaluators(list Lister, c clock.PassiveClock, reader Reader) []quota.Evaluator {
	out := []quota.Evaluator{
		pods(list.of(corev1.Resource("pods")), c),
		services(list.of(corev1.Resource("services"))),
		claims(list.of(corev1.Resource("persistentvolumeclaims"))),
		deviceClaims(list.of(resourcev1.Resource("resourceclaims")), devices{reader, c}),
	}
	for plural, alias := range olderNames {
		out = append(out, generic.NewObjectCountEvaluator(corev1.Resource(plural), list.of(corev1.Resource(plural)), alias))
	}
	return out
}

// Count returns the evaluator that counts the objects of a kind.
func Count(resource schema.GroupResource, list Lister) quota.Evaluator {
	return generic.NewObjectCountEvaluator(resource, list.of(resource), "")
}

// Counted returns the kind whose objects a name counts (count/deployments.apps).
func Counted(name corev1.ResourceName) (schema.GroupResource, bool) {
	text, found := strings.CutPrefix(string(name), "count/")
	resource := schema.ParseGroupResource(text)
	_, never := ignored[resource]
	return resource, found && !never
}

// Changed reports whether an update of an object changes its usage or its scopes.
func Changed(e quota.Evaluator, now, old runtime.Object) bool {
	kind, ok := e.(interface {
		changed(now, old runtime.Object) bool
	})
	return ok && kind.changed(now, old)
}

// evaluator evaluates objects of one kind.
type evaluator[T runtime.Object] struct {
	counted schema.GroupResource
	list    generic.ListFuncByNamespace
	handles func(admission.Attributes) bool
	// counts reports whether the evaluator counts a name in a quota.
	counts func(corev1.ResourceName) bool
	usage  func(T) (corev1.ResourceList, error)
	// inScope reports whether a scope selects the object. If nil, no scope does.
	inScope func(T, corev1.ScopedResourceSelectorRequirement) (bool, error)
	// moved reports whether an update changes the object's scopes.
	moved func(now, old T) bool
	// require refuses objects that lack required quantities.
	require func(T, []corev1.ResourceName) error
}

var _ quota.Evaluator = &evaluator[*corev1.Pod]{}

// GroupResource implements quota.Evaluator.
func (e *evaluator[T]) GroupResource() schema.GroupResource { return e.counted }

// Handles implements quota.Evaluator.
func (e *evaluator[T]) Handles(a admission.Attributes) bool { return e.handles(a) }

func (e *evaluator[T]) object(item runtime.Object) (T, error) {
	obj, ok := item.(T)
	if !ok {
		return obj, fmt.Errorf("expected one of the %s, got %T", e.counted.Resource, item)
	}
	return obj, nil
}

// Constraints implements quota.Evaluator.
func (e *evaluator[T]) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	obj, err := e.object(item)
	if err != nil || e.require == nil {
		return err
	}
	return e.require(obj, required)
}

// Matches implements quota.Evaluator.
func (e *evaluator[T]) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.MatchingResources, e.matchesScope)
}

func (e *evaluator[T]) matchesScope(selector corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	obj, err := e.object(item)
	if err != nil || e.inScope == nil {
		return false, err
	}
	return e.inScope(obj, selector)
}

// MatchingScopes implements quota.Evaluator.
func (e *evaluator[T]) MatchingScopes(item runtime.Object, selectors []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, selector := range selectors {
		match, err := e.matchesScope(selector, item)
		if err != nil {
			return nil, fmt.Errorf("error on matching scope %v: %w", selector, err)
		}
		if match {
			out = append(out, selector)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (e *evaluator[T]) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	covered := map[corev1.ResourceQuotaScope]bool{}
	for _, selector := range matched {
		covered[selector.ScopeName] = true
	}
	var out []corev1.ScopedResourceSelectorRequirement
	for _, selector := range limited {
		if e.inScope != nil && !covered[selector.ScopeName] {
			out = append(out, selector)
		}
	}
	return out, nil
}

// MatchingResources implements quota.Evaluator.
func (e *evaluator[T]) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	count := generic.ObjectCountQuotaResourceNameFor(e.GroupResource())
	out := []corev1.ResourceName{}
	for _, name := range names {
		if name == count || e.counts(name) {
			out = append(out, name)
		}
	}
	return out
}

// Usage implements quota.Evaluator. It always includes the object count.
func (e *evaluator[T]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := e.object(item)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	ofKind, err := e.usage(obj)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	used := corev1.ResourceList{generic.ObjectCountQuotaResourceNameFor(e.GroupResource()): number(1)}
	maps.Copy(used, ofKind)
	return used, nil
}

// UsageStats implements quota.Evaluator.
func (e *evaluator[T]) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, e.list, e.matchesScope, e.Usage)
}

func (e *evaluator[T]) changed(now, old runtime.Object) bool {
	obj, err := e.object(now)
	before, errBefore := e.object(old)
	if err != nil || errBefore != nil {
		return false
	}
	if e.moved != nil && e.moved(obj, before) {
		return true
	}
	used, err := e.usage(obj)
	usedBefore, errBefore := e.usage(before)
	// After an error, the object is counted again.
	return err != nil || errBefore != nil || !quota.Equals(used, usedBefore)
}

// always converts a usage function that cannot fail.
func always[T any](usage func(T) corev1.ResourceList) func(T) (corev1.ResourceList, error) {
	return func(obj T) (corev1.ResourceList, error) { return usage(obj), nil }
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// createdOrUpdated reports whether a request may change the usage of a mutable kind.
func createdOrUpdated(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn:           selection.In,
	corev1.ScopeSelectorOpNotIn:        selection.NotIn,
	corev1.ScopeSelectorOpExists:       selection.Exists,
	corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

// selects reports whether a scope selector matches one of an object's classes. An object without
// a class may match too (NotIn, DoesNotExist).
func selects(selector corev1.ScopedResourceSelectorRequirement, classes ...string) (bool, error) {
	operator, found := operators[selector.Operator]
	if !found {
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator", selector.Operator)
	}
	requirement, err := labels.NewRequirement(string(selector.ScopeName), operator, selector.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(classes) == 0 {
		return requirement.Matches(labels.Set{}), nil
	}
	for _, class := range classes {
		if requirement.Matches(labels.Set{string(selector.ScopeName): class}) {
			return true, nil
		}
	}
	return false, nil
}
