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
)

// leniency is what a webhook may get wrong because it, or one beside it, was wrong
// before: rules that came later must not keep an old object from being updated.
type leniency struct {
	sideEffects, reviewVersions, sameNames, selectors bool
	// conditions need not be compiled again.
	conditions bool
	stored     sets.Set[string]
}

func strict() leniency { return leniency{} }

// concessions are made to an update.
func concessions(hooks, before []admissionv1.MutatingWebhook) leniency {
	return leniency{
		sideEffects:    slices.ContainsFunc(before, hasSideEffects),
		reviewVersions: slices.ContainsFunc(before, speaksNoKnownVersion),
		sameNames:      sameNames(before),
		selectors:      slices.ContainsFunc(before, hasBrokenSelector),
		conditions:     sameConditions(hooks, before),
		stored:         storedConditions(before),
	}
}

// reviewVersions are those of AdmissionReview that the server speaks.
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

func speaksNoKnownVersion(h admissionv1.MutatingWebhook) bool {
	return len(h.AdmissionReviewVersions) > 0 && !slices.ContainsFunc(h.AdmissionReviewVersions, isReviewVersion)
}

func sameNames(hooks []admissionv1.MutatingWebhook) bool {
	names := sets.New[string]()
	for _, h := range hooks {
		names.Insert(h.Name)
	}
	return names.Len() < len(hooks)
}

func hasBrokenSelector(h admissionv1.MutatingWebhook) bool {
	return len(validateSelector(h.NamespaceSelector, leniency{}, nil))+len(validateSelector(h.ObjectSelector, leniency{}, nil)) > 0
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

func validateHooks(hooks []admissionv1.MutatingWebhook, may leniency) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range hooks {
		h, path := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(h, may, path)...)
		errs = append(errs, validateReviewVersions(h.AdmissionReviewVersions, may, path.Child("admissionReviewVersions"))...)
		if h.Name != "" && names.Has(h.Name) && !may.sameNames {
			errs = append(errs, field.Duplicate(path.Child("name"), h.Name))
		}
		names.Insert(h.Name)
	}
	return errs
}

func validateHook(h *admissionv1.MutatingWebhook, may leniency, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(path.Child("name"), h.Name)
	for i := range h.Rules {
		errs = append(errs, validateRuleWithOperations(&h.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, oneOf(h.FailurePolicy, path.Child("failurePolicy"), failurePolicies)...)
	errs = append(errs, oneOf(h.MatchPolicy, path.Child("matchPolicy"), matchPolicies)...)
	errs = append(errs, validateSideEffects(h.SideEffects, may, path.Child("sideEffects"))...)
	if s := h.TimeoutSeconds; s != nil && (*s < 1 || *s > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *s, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateSelector(h.NamespaceSelector, may, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(h.ObjectSelector, may, path.Child("objectSelector"))...)
	errs = append(errs, oneOf(h.ReinvocationPolicy, path.Child("reinvocationPolicy"), reinvocationPolicies)...)
	errs = append(errs, validateClient(&h.ClientConfig, path.Child("clientConfig"))...)
	if may.conditions {
		return errs
	}
	return append(errs, expressions{stored: may.stored}.validateMatchConditions(h.MatchConditions, path.Child("matchConditions"))...)
}

func validateSideEffects(class *admissionv1.SideEffectClass, may leniency, path *field.Path) field.ErrorList {
	allowed := harmless
	if may.sideEffects {
		allowed = allSideEffects
	}
	if class == nil {
		return field.ErrorList{field.Required(path, "must specify one of "+joined(allowed))}
	}
	return oneOf(class, path, allowed)
}

func joined[T ~string](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return strings.Join(texts, ", ")
}

func validateSelector(s *metav1.LabelSelector, may leniency, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: may.selectors}, path)
}

func validateClient(c *admissionv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhook.ValidateWebhookURL(path.Child("url"), *c.URL, true)
	}
	// Upstream mistakes the one for the other too: a missing name is reported as a
	// missing namespace.
	s := c.Service
	return webhook.ValidateWebhookService(path.Child("service"), s.Name, s.Namespace, s.Path, ptr.Deref(s.Port, 0))
}

func validateReviewVersions(versions []string, may leniency, path *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+joined(reviewVersions))}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, version := range versions {
		if seen.Has(version) {
			errs = append(errs, field.Invalid(path.Index(i), version, "duplicate version"))
			continue
		}
		seen.Insert(version)
		errs = append(errs, invalid(path.Index(i), version, utilvalidation.IsDNS1035Label(version))...)
	}
	if !may.reviewVersions && !slices.ContainsFunc(versions, isReviewVersion) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+joined(reviewVersions)))
	}
	return errs
}
