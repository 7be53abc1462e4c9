// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// leniency lists the rules that a stored webhook may keep breaking, so that rules that were added
// later do not block updates.
type leniency struct {
	sideEffects, reviewVersions, duplicateNames, selectors bool
	// conditions permits not to compile the conditions again.
	conditions bool
	stored     sets.Set[string]
}

func strict() leniency { return leniency{} }

// concessions returns the rules that the stored webhooks break.
func concessions(hooks, before []admissionv1.MutatingWebhook) leniency {
	return leniency{
		sideEffects:    slices.ContainsFunc(before, hasSideEffects),
		reviewVersions: slices.ContainsFunc(before, lacksReviewVersion),
		duplicateNames: hasDuplicateNames(before),
		selectors:      slices.ContainsFunc(before, hasBrokenSelector),
		conditions:     sameConditions(hooks, before),
		stored:         storedConditions(before),
	}
}

// reviewVersions are the supported versions of AdmissionReview.
var reviewVersions = []string{"v1", "v1beta1"}

var (
	harmless       = []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
	allSideEffects = []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun,
		admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown}
)

func hasSideEffects(h admissionv1.MutatingWebhook) bool {
	return h.SideEffects == nil || !slices.Contains(harmless, *h.SideEffects)
}

func isReviewVersion(version string) bool { return slices.Contains(reviewVersions, version) }

func lacksReviewVersion(h admissionv1.MutatingWebhook) bool {
	return len(h.AdmissionReviewVersions) > 0 && !slices.ContainsFunc(h.AdmissionReviewVersions, isReviewVersion)
}

func hasDuplicateNames(hooks []admissionv1.MutatingWebhook) bool {
	names := sets.New[string]()
	for _, h := range hooks {
		names.Insert(h.Name)
	}
	return names.Len() < len(hooks)
}

func hasBrokenSelector(h admissionv1.MutatingWebhook) bool {
	return len(check.Run(func(c *check.Checker) {
		validateSelector(c, h.NamespaceSelector, leniency{}, nil)
		validateSelector(c, h.ObjectSelector, leniency{}, nil)
	})) > 0
}

func sameConditions(hooks, before []admissionv1.MutatingWebhook) bool {
	return slices.EqualFunc(hooks, before, func(a, b admissionv1.MutatingWebhook) bool {
		return reflect.DeepEqual(a.MatchConditions, b.MatchConditions)
	})
}

func storedConditions(hooks []admissionv1.MutatingWebhook) sets.Set[string] {
	stored := sets.New[string]()
	for _, h := range hooks {
		for _, c := range h.MatchConditions {
			stored.Insert(c.Expression)
		}
	}
	return stored
}

func validateHooks(c *check.Checker, hooks []admissionv1.MutatingWebhook, may leniency) {
	names := sets.New[string]()
	for i := range hooks {
		h, path := &hooks[i], field.NewPath("webhooks").Index(i)
		validateHook(c, h, may, path)
		validateReviewVersions(c, h.AdmissionReviewVersions, may, path.Child("admissionReviewVersions"))
		if h.Name != "" && names.Has(h.Name) && !may.duplicateNames {
			c.Duplicate(path.Child("name"), h.Name)
		}
		names.Insert(h.Name)
	}
}

func validateHook(c *check.Checker, h *admissionv1.MutatingWebhook, may leniency, path *field.Path) {
	c.Add(utilvalidation.IsFullyQualifiedName(path.Child("name"), h.Name)...)
	for i := range h.Rules {
		validateRuleWithOperations(c, &h.Rules[i], path.Child("rules").Index(i))
	}
	check.OptionalOneOf(c, path.Child("failurePolicy"), h.FailurePolicy, failurePolicies...)
	check.OptionalOneOf(c, path.Child("matchPolicy"), h.MatchPolicy, matchPolicies...)
	validateSideEffects(c, h.SideEffects, may, path.Child("sideEffects"))
	if s := h.TimeoutSeconds; s != nil && (*s < 1 || *s > 30) {
		c.Invalid(path.Child("timeoutSeconds"), *s, "the timeout value must be between 1 and 30 seconds")
	}
	validateSelector(c, h.NamespaceSelector, may, path.Child("namespaceSelector"))
	validateSelector(c, h.ObjectSelector, may, path.Child("objectSelector"))
	check.OptionalOneOf(c, path.Child("reinvocationPolicy"), h.ReinvocationPolicy, reinvocationPolicies...)
	validateClient(c, &h.ClientConfig, path.Child("clientConfig"))
	if !may.conditions {
		expressions{stored: may.stored}.validateMatchConditions(c, h.MatchConditions, path.Child("matchConditions"))
	}
}

func validateSideEffects(c *check.Checker, class *admissionv1.SideEffectClass, may leniency, path *field.Path) {
	allowed := harmless
	if may.sideEffects {
		allowed = allSideEffects
	}
	if class == nil {
		c.Required(path, "must specify one of "+joined(allowed))
		return
	}
	check.OptionalOneOf(c, path, class, allowed...)
}

func joined[T ~string](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return strings.Join(texts, ", ")
}

func validateSelector(c *check.Checker, s *metav1.LabelSelector, may leniency, path *field.Path) {
	c.Add(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: may.selectors}, path)...)
}

func validateClient(c *check.Checker, config *admissionv1.WebhookClientConfig, path *field.Path) {
	switch {
	case (config.URL == nil) == (config.Service == nil):
		c.Required(path, "exactly one of url or service is required")
		return
	case config.URL != nil:
		c.Add(webhook.ValidateWebhookURL(path.Child("url"), *config.URL, true)...)
		return
	}
	// Upstream swaps name and namespace too: it reports a missing name as a missing namespace.
	s := config.Service
	c.Add(webhook.ValidateWebhookService(path.Child("service"), s.Name, s.Namespace, s.Path, ptr.Deref(s.Port, 0))...)
}

func validateReviewVersions(c *check.Checker, versions []string, may leniency, path *field.Path) {
	if len(versions) == 0 {
		c.Required(path, "must specify one of "+joined(reviewVersions))
		return
	}
	seen := sets.New[string]()
	for i, version := range versions {
		if seen.Has(version) {
			c.Invalid(path.Index(i), version, "duplicate version")
			continue
		}
		seen.Insert(version)
		c.Invalid(path.Index(i), version, utilvalidation.IsDNS1035Label(version)...)
	}
	if !may.reviewVersions && !slices.ContainsFunc(versions, isReviewVersion) {
		c.Invalid(path, versions, "must include at least one of "+joined(reviewVersions))
	}
}
